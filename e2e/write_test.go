package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
)

// The requests are encoded by hand: upstream's encoders turn -0 into 0, and
// would not write what a sender must not send.

// A sentSeries is one series of a write request.
type sentSeries struct {
	labels []string // names and values in turn
	points []point
	starts []int64  // start timestamps of the points, or nil
	hists  [][]byte // encoded histograms of the protocol
}

// sent makes a sentSeries of labels that are well formed.
func sent(ls labels.Labels, points ...point) sentSeries {
	s := sentSeries{points: points}
	ls.Range(func(l labels.Label) { s.labels = append(s.labels, l.Name, l.Value) })
	return s
}

// A protocol is a version of remote write.
type protocol struct {
	name        string
	message     string // as prometheus.yml names it
	contentType string
	encode      func([]sentSeries) []byte
}

func remoteWrite1() protocol {
	return protocol{"1.0", "prometheus.WriteRequest", "application/x-protobuf", encodeWrite1}
}

func remoteWrite2() protocol {
	const message = "io.prometheus.write.v2.Request"
	return protocol{"2.0", message, "application/x-protobuf;proto=" + message, encodeWrite2}
}

func remoteWrites() []protocol { return []protocol{remoteWrite1(), remoteWrite2()} }

// A response is what an HTTP server answered.
type response struct {
	status int
	header http.Header
	body   string
}

func (r response) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// post sends body with headers.
func post(ctx context.Context, url string, header map[string]string, body []byte) (response, error) {
	return roundTrip(ctx, http.MethodPost, url, header, body)
}

func roundTrip(ctx context.Context, method, url string, header map[string]string, body []byte) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return response{}, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return response{resp.StatusCode, resp.Header, string(text)}, err
}

// send writes series and returns the answer whatever it is.
func (p protocol) send(ctx context.Context, url string, series []sentSeries) (response, error) {
	header := map[string]string{"Content-Encoding": "snappy", "Content-Type": p.contentType}
	return post(ctx, url, header, snappy.Encode(nil, p.encode(series)))
}

// mustSend writes series and wants them stored.
func (p protocol) mustSend(t testing.TB, url string, series ...sentSeries) {
	t.Helper()
	resp, err := p.send(context.Background(), url, series)
	if err != nil {
		t.Fatal(err)
	}
	if resp.status != http.StatusNoContent {
		t.Fatalf("remote write %s: %v", p.name, resp)
	}
}

// Protobuf wire types.
const (
	wireVarint = 0
	wireFixed  = 1
	wireBytes  = 2
)

func appendTag(dst []byte, field, wire uint64) []byte {
	return binary.AppendUvarint(dst, field<<3|wire)
}

func appendBytes[T string | []byte](dst []byte, field uint64, b T) []byte {
	dst = binary.AppendUvarint(appendTag(dst, field, wireBytes), uint64(len(b)))
	return append(dst, b...)
}

func appendInt(dst []byte, field uint64, v int64) []byte {
	return binary.AppendUvarint(appendTag(dst, field, wireVarint), uint64(v))
}

// appendSample appends fields 1 and 2, and 3 where start is not 0.
func appendSample(dst []byte, p point, start int64) []byte {
	dst = binary.LittleEndian.AppendUint64(appendTag(dst, 1, wireFixed), p.bits)
	dst = appendInt(dst, 2, p.t)
	if start != 0 {
		dst = appendInt(dst, 3, start)
	}
	return dst
}

// encodeWrite1 encodes a prometheus.WriteRequest, which knows no start
// timestamps.
func encodeWrite1(series []sentSeries) []byte {
	var req, ts, msg []byte
	for _, s := range series {
		ts = ts[:0]
		for i := 0; i+1 < len(s.labels); i += 2 {
			msg = appendBytes(appendBytes(msg[:0], 1, s.labels[i]), 2, s.labels[i+1])
			ts = appendBytes(ts, 1, msg)
		}
		for _, p := range s.points {
			msg = appendSample(msg[:0], p, 0)
			ts = appendBytes(ts, 2, msg)
		}
		for _, h := range s.hists {
			ts = appendBytes(ts, 4, h)
		}
		req = appendBytes(req, 1, ts)
	}
	return req
}

// encodeWrite2 encodes an io.prometheus.write.v2.Request.
func encodeWrite2(series []sentSeries) []byte {
	symbols := newSymbolTable()
	var all, ts, msg []byte
	for _, s := range series {
		msg = msg[:0]
		for _, text := range s.labels {
			msg = binary.AppendUvarint(msg, symbols.ref(text))
		}
		ts = appendBytes(ts[:0], 1, msg)
		for i, p := range s.points {
			start := int64(0)
			if s.starts != nil {
				start = s.starts[i]
			}
			msg = appendSample(msg[:0], p, start)
			ts = appendBytes(ts, 2, msg)
		}
		for _, h := range s.hists {
			ts = appendBytes(ts, 3, h)
		}
		all = appendBytes(all, 5, ts)
	}
	var req []byte
	for _, text := range symbols.list {
		req = appendBytes(req, 4, text)
	}
	return append(req, all...)
}

// A symbolTable numbers strings in the order in which they are added.
type symbolTable struct {
	refs map[string]uint64
	list []string
}

// newSymbolTable returns a table of the empty string.
func newSymbolTable() *symbolTable {
	return &symbolTable{refs: map[string]uint64{"": 0}, list: []string{""}}
}

// ref returns the number of text, which it adds if it is new.
func (s *symbolTable) ref(text string) uint64 {
	ref, ok := s.refs[text]
	if !ok {
		ref = uint64(len(s.list))
		s.refs[text] = ref
		s.list = append(s.list, text)
	}
	return ref
}

// nowMillis is the time in the unit of samples.
func nowMillis() int64 { return time.Now().UnixMilli() }
