package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// CountOverTime counts, by PromQL, the samples of a metric since first, which is
// in milliseconds.
func CountOverTime(a *Adapter, metric string, first int64) (int, error) {
	now := NowMillis()
	query := fmt.Sprintf("sum(count_over_time(%s[%dms]))", metric, now-first+1)
	data, err := GetAPI(a.URL("/api/v1/query"), url.Values{"query": {query}, "time": {FormatSeconds(now)}})
	if err != nil {
		return 0, err
	}
	var answer struct {
		Result []struct{ Value [2]any }
	}
	if err := json.Unmarshal(data, &answer); err != nil || len(answer.Result) == 0 {
		return 0, err
	}
	return strconv.Atoi(answer.Result[0].Value[1].(string))
}

// MustGet returns the answer to a GET, whatever its status.
func MustGet(t testing.TB, url string, header map[string]string) Response {
	t.Helper()
	resp, err := RoundTrip(context.Background(), http.MethodGet, url, header, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// ProtobufHeader returns the headers of remote write 1.0. The changes are names
// and values in turn; an empty value leaves the header out.
func ProtobufHeader(changes ...string) map[string]string {
	header := map[string]string{"Content-Type": RemoteWrite1().ContentType, "Content-Encoding": "snappy"}
	for c := range slices.Chunk(changes, 2) {
		header[c[0]] = c[1]
	}
	maps.DeleteFunc(header, func(_, value string) bool { return value == "" })
	return header
}

// GetAPI returns the data of a query to the HTTP API at url. An answer without
// success or with a warning is an error.
func GetAPI(url string, params url.Values) (json.RawMessage, error) {
	resp, err := RoundTrip(context.Background(), http.MethodGet, url+"?"+params.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	var envelope struct {
		Status   string
		Data     json.RawMessage
		Error    string
		Warnings []string
	}
	if err := json.Unmarshal([]byte(resp.Body), &envelope); err != nil {
		return nil, fmt.Errorf("%s: %w: %v", url, err, resp)
	}
	if envelope.Status != "success" || len(envelope.Warnings) > 0 {
		return nil, fmt.Errorf("%s %v: %s %v", url, params, envelope.Error, envelope.Warnings)
	}
	return envelope.Data, nil
}

// FormatSeconds prints milliseconds as the HTTP API reads times.
func FormatSeconds(t int64) string { return fmt.Sprintf("%d.%03d", t/1000, t%1000) }

// JSONSeconds prints milliseconds as the HTTP API answers times: without a fraction of zero.
func JSONSeconds(t int64) string { return strings.TrimSuffix(FormatSeconds(t), ".000") }

// A Response is what an HTTP server answered.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// String returns the status and the body.
func (r Response) String() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

// Post sends body with headers.
func Post(ctx context.Context, url string, header map[string]string, body []byte) (Response, error) {
	return RoundTrip(ctx, http.MethodPost, url, header, body)
}

// Do returns an answer with a 2xx status. Any other is a StatusError.
func Do(client *http.Client, req *http.Request) (*http.Response, error) {
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024)) // for the message only
	return nil, StatusError{resp.StatusCode, fmt.Sprintf("%s: %s: %s", req.URL.Path, resp.Status, bytes.TrimSpace(text))}
}

// A StatusError is an answer with another status than 2xx, with the beginning of its body.
type StatusError struct {
	Status int
	text   string
}

func (e StatusError) Error() string { return e.text }

// RoundTrip sends a request with headers and returns the answer, whatever its
// status.
func RoundTrip(ctx context.Context, method, url string, header map[string]string, body []byte) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return Response{resp.StatusCode, resp.Header, string(text)}, err
}

// FreeAddress returns an address of this host at which no process listens now.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
