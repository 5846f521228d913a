package harness

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

// Samples and Streamed are the two types of answer of remote read.
const (
	Samples  = prompb.ReadRequest_SAMPLES
	Streamed = prompb.ReadRequest_STREAMED_XOR_CHUNKS
)

// CurrentPrometheus is how the Prometheus that can read all encodings of chunks
// presents itself.
const CurrentPrometheus = "Prometheus/3.16.0"

// AnswerTypes returns both types of answer.
func AnswerTypes() []prompb.ReadRequest_ResponseType {
	return []prompb.ReadRequest_ResponseType{Samples, Streamed}
}

// A Query selects the series that all matchers match, and of them the points in
// [mint, maxt], both included.
type Query struct {
	Mint, Maxt int64
	Matchers   []*labels.Matcher
}

// Proto returns the query as it goes over the wire.
func (q Query) Proto() (*prompb.Query, error) {
	return remote.ToQuery(q.Mint, q.Maxt, q.Matchers, nil)
}

// SelectFrom returns what of series, and of their points, the query selects. It
// leaves out series without points.
func (q Query) SelectFrom(series []TimeSeries) (found []TimeSeries) {
	for _, s := range series {
		if slices.ContainsFunc(q.Matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels.Get(m.Name)) }) {
			continue
		}
		selected := TimeSeries{Labels: s.Labels}
		for _, p := range s.Points {
			if p.T >= q.Mint && p.T <= q.Maxt {
				selected.Points = append(selected.Points, p)
			}
		}
		found = append(found, selected)
	}
	return WithoutEmpty(found)
}

// queriesPerRequest is how many queries go into one request: several, and not
// more than the adapter takes.
const queriesPerRequest = 50

// Read asks for all queries. The answer to each is sorted by labels and holds
// no series without points.
func Read(url string, as prompb.ReadRequest_ResponseType, queries ...Query) ([][]TimeSeries, error) {
	var results [][]TimeSeries
	for part := range slices.Chunk(queries, queriesPerRequest) {
		more, err := readRequest(url, as, part)
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	return results, nil
}

// readRequest asks for all queries in one request.
func readRequest(url string, as prompb.ReadRequest_ResponseType, queries []Query) ([][]TimeSeries, error) {
	resp, err := PostRead(context.Background(), url, as, queries...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return DecodeRead(as, resp.Body, queries...)
}

// MustRead returns the answer to one query.
func MustRead(t testing.TB, url string, as prompb.ReadRequest_ResponseType, q Query) []TimeSeries {
	t.Helper()
	results, err := Read(url, as, q)
	if err != nil {
		t.Fatalf("%v: %v", as, err)
	}
	return results[0]
}

// PostRead sends a remote read. An answer other than 2xx, or of another type, is an error.
func PostRead(ctx context.Context, url string, as prompb.ReadRequest_ResponseType, queries ...Query) (*http.Response, error) {
	req, err := NewRead(ctx, url, as, queries...)
	if err != nil {
		return nil, err
	}
	resp, err := Do(http.DefaultClient, req)
	if err != nil {
		return nil, err
	}
	want := "application/x-protobuf"
	if as == Streamed {
		want = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
	}
	if got := resp.Header.Get("Content-Type"); got != want {
		resp.Body.Close()
		return nil, fmt.Errorf("a %v answer has type %q", as, got)
	}
	return resp, nil
}

// NewRead makes a remote read of all queries.
func NewRead(ctx context.Context, url string, as prompb.ReadRequest_ResponseType, queries ...Query) (*http.Request, error) {
	read := &prompb.ReadRequest{AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{as}}
	for _, q := range queries {
		p, err := q.Proto()
		if err != nil {
			return nil, err
		}
		read.Queries = append(read.Queries, p)
	}
	data, err := proto.Marshal(read)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(snappy.Encode(nil, data)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	req.Header.Set("User-Agent", CurrentPrometheus)
	return req, nil
}

// DecodeRead decodes an answer to queries as Read does.
func DecodeRead(as prompb.ReadRequest_ResponseType, body io.Reader, queries ...Query) ([][]TimeSeries, error) {
	if as == Streamed {
		return decodeStream(body, queries)
	}
	return decodeSamples(body, len(queries))
}

// decodeSamples decodes a SAMPLES answer.
func decodeSamples(r io.Reader, queries int) ([][]TimeSeries, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if body, err = snappy.Decode(nil, body); err != nil {
		return nil, err
	}
	var read prompb.ReadResponse
	if err := proto.Unmarshal(body, &read); err != nil {
		return nil, err
	}
	if len(read.Results) != queries {
		return nil, fmt.Errorf("%d results for %d queries", len(read.Results), queries)
	}
	results := make([][]TimeSeries, queries)
	for i, result := range read.Results {
		for _, ts := range result.Timeseries {
			s := TimeSeries{Labels: fromWire(ts.Labels)}
			for _, sample := range ts.Samples {
				s.Points = append(s.Points, PointAt(sample.Timestamp, sample.Value))
			}
			for _, h := range ts.Histograms {
				s.Points = append(s.Points, fromWireHistogram(h))
			}
			slices.SortStableFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.T, b.T) })
			results[i] = append(results[i], s)
		}
		SortSeries(results[i])
		results[i] = WithoutEmpty(results[i])
	}
	return results, nil
}

// fromWireHistogram decodes a histogram of a SAMPLES answer.
func fromWireHistogram(h prompb.Histogram) Point {
	if h.IsFloatHistogram() {
		return HistogramPoint(h.Timestamp, 0, nil, h.ToFloatHistogram())
	}
	return HistogramPoint(h.Timestamp, 0, h.ToIntHistogram(), nil)
}

// fromWire keeps what came, wrong or not.
func fromWire(pairs []prompb.Label) labels.Labels {
	b := labels.NewScratchBuilder(len(pairs))
	for _, l := range pairs {
		b.Add(l.Name, l.Value)
	}
	return b.Labels()
}

// MustMatchers parses matchers written as alternating name, operator, value.
func MustMatchers(t testing.TB, parts ...string) []*labels.Matcher {
	t.Helper()
	types := []labels.MatchType{labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp}
	var ms []*labels.Matcher
	for part := range slices.Chunk(parts, 3) {
		i := slices.IndexFunc(types, func(m labels.MatchType) bool { return m.String() == part[1] })
		m, err := labels.NewMatcher(types[i], part[0], part[2])
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	return ms
}
