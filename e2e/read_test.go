package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// An answer is a type of remote read answer.
type answer = prompb.ReadRequest_ResponseType

const (
	samples  answer = prompb.ReadRequest_SAMPLES
	streamed answer = prompb.ReadRequest_STREAMED_XOR_CHUNKS
)

// currentPrometheus is how the Prometheus that can read all encodings of chunks
// presents itself.
const currentPrometheus = "Prometheus/3.15.0"

func answers() []answer { return []answer{samples, streamed} }

// A query selects the series that all matchers match, and of them the points in
// [mint, maxt], both included.
type query struct {
	mint, maxt int64
	matchers   []*labels.Matcher
}

// proto returns the query as it goes over the wire.
func (q query) proto() (*prompb.Query, error) {
	return remote.ToQuery(q.mint, q.maxt, q.matchers, nil)
}

// selectFrom returns what of series, and of their points, the query selects. It
// leaves out series without points.
func (q query) selectFrom(series []timeSeries) (found []timeSeries) {
	for _, s := range series {
		if slices.ContainsFunc(q.matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			continue
		}
		selected := timeSeries{labels: s.labels}
		for _, p := range s.points {
			if p.t >= q.mint && p.t <= q.maxt {
				selected.points = append(selected.points, p)
			}
		}
		found = append(found, selected)
	}
	return withoutEmpty(found)
}

// queriesPerRequest is how many queries go into one request: several, and not
// more than the adapter takes.
const queriesPerRequest = 50

// read asks for all queries. The answer to each is sorted by labels and holds
// no series without points.
func read(url string, as answer, queries ...query) ([][]timeSeries, error) {
	var results [][]timeSeries
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
func readRequest(url string, as answer, queries []query) ([][]timeSeries, error) {
	req := &prompb.ReadRequest{AcceptedResponseTypes: []answer{as}}
	for _, q := range queries {
		p, err := q.proto()
		if err != nil {
			return nil, err
		}
		req.Queries = append(req.Queries, p)
	}
	resp, err := postRead(context.Background(), url, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if as == samples {
		return decodeSamples(resp, len(queries))
	}
	return decodeStream(resp, queries)
}

// mustRead returns the answer to one query.
func mustRead(t testing.TB, url string, as answer, q query) []timeSeries {
	t.Helper()
	results, err := read(url, as, q)
	if err != nil {
		t.Fatalf("%v: %v", as, err)
	}
	return results[0]
}

// postRead sends a request. An answer other than 200 is an error.
func postRead(ctx context.Context, url string, req *prompb.ReadRequest) (*http.Response, error) {
	data, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	httpReq, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(snappy.Encode(nil, data)))
	if err != nil {
		return nil, err
	}
	httpReq.Header.Set("Content-Encoding", "snappy")
	httpReq.Header.Set("Content-Type", "application/x-protobuf")
	httpReq.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	httpReq.Header.Set("User-Agent", currentPrometheus)
	resp, err := http.DefaultClient.Do(httpReq)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return resp, nil
}

// decodeSamples decodes a SAMPLES answer.
func decodeSamples(resp *http.Response, queries int) ([][]timeSeries, error) {
	if got := resp.Header.Get("Content-Type"); got != "application/x-protobuf" {
		return nil, fmt.Errorf("a SAMPLES answer has type %q", got)
	}
	body, err := io.ReadAll(resp.Body)
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
	results := make([][]timeSeries, queries)
	for i, result := range read.Results {
		for _, ts := range result.Timeseries {
			s := timeSeries{labels: fromWire(ts.Labels)}
			for _, sample := range ts.Samples {
				s.points = append(s.points, at(sample.Timestamp, sample.Value))
			}
			for _, h := range ts.Histograms {
				s.points = append(s.points, fromWireHistogram(h))
			}
			slices.SortStableFunc(s.points, func(a, b point) int { return cmp.Compare(a.t, b.t) })
			results[i] = append(results[i], s)
		}
		sortSeries(results[i])
		results[i] = withoutEmpty(results[i])
	}
	return results, nil
}

// decodeStream decodes a STREAMED_XOR_CHUNKS answer. It joins the frames of one
// series: Prometheus itself splits them.
func decodeStream(resp *http.Response, queries []query) ([][]timeSeries, error) {
	results := make([][]timeSeries, len(queries))
	err := eachFrame(resp, func(frame *prompb.ChunkedReadResponse) error {
		i := int(frame.QueryIndex)
		for _, cs := range frame.ChunkedSeries {
			points, err := decodeChunks(cs.Chunks, queries[i])
			if err != nil {
				return err
			}
			s := timeSeries{fromWire(cs.Labels), points}
			if n := len(results[i]); n > 0 && labels.Equal(results[i][n-1].labels, s.labels) {
				results[i][n-1].points = append(results[i][n-1].points, points...)
				continue
			}
			results[i] = append(results[i], s)
		}
		return nil
	})
	for i := range results {
		sortSeries(results[i])
		results[i] = withoutEmpty(results[i])
	}
	return results, err
}

// eachFrame calls fn for each frame of a streamed answer.
func eachFrame(resp *http.Response, fn func(*prompb.ChunkedReadResponse) error) error {
	const stream = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, stream) {
		return fmt.Errorf("a streamed answer has type %q", got)
	}
	frames := remote.NewChunkedReader(resp.Body, 50_000_000, nil)
	for {
		var frame prompb.ChunkedReadResponse
		err := frames.NextProto(&frame)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(&frame); err != nil {
			return err
		}
	}
}

// fromWireHistogram decodes a histogram of a SAMPLES answer.
func fromWireHistogram(h prompb.Histogram) point {
	if h.IsFloatHistogram() {
		return histogramAt(h.Timestamp, 0, nil, h.ToFloatHistogram())
	}
	return histogramAt(h.Timestamp, 0, h.ToIntHistogram(), nil)
}

// decodeChunks returns the points that lie in the range of q: chunks may hold
// more.
func decodeChunks(chunks []prompb.Chunk, q query) ([]point, error) {
	var points []point
	for _, c := range chunks {
		chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, err
		}
		it := chunk.Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			p := pointOf(kind, it)
			if p.t < c.MinTimeMs || p.t > c.MaxTimeMs {
				return nil, fmt.Errorf("a chunk of [%d, %d] holds %d", c.MinTimeMs, c.MaxTimeMs, p.t)
			}
			if p.t >= q.mint && p.t <= q.maxt {
				points = append(points, p)
			}
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
	return points, nil
}

// pointOf returns what it stands at.
func pointOf(kind chunkenc.ValueType, it chunkenc.Iterator) point {
	switch kind {
	case chunkenc.ValHistogram:
		t, h := it.AtHistogram(nil)
		return histogramAt(t, it.AtST(), h, nil)
	case chunkenc.ValFloatHistogram:
		t, fh := it.AtFloatHistogram(nil)
		return histogramAt(t, it.AtST(), nil, fh)
	}
	t, v := it.At()
	return point{t: t, bits: math.Float64bits(v), start: it.AtST()}
}

// fromWire keeps what came, wrong or not.
func fromWire(pairs []prompb.Label) labels.Labels {
	b := labels.NewScratchBuilder(len(pairs))
	for _, l := range pairs {
		b.Add(l.Name, l.Value)
	}
	return b.Labels()
}

// checkStream wants what a client of a streamed answer relies on: one series in
// a frame, whole, and series in ascending order.
func checkStream(t testing.TB, url string, q query) {
	t.Helper()
	p, err := q.proto()
	if err != nil {
		t.Fatal(err)
	}
	req := &prompb.ReadRequest{AcceptedResponseTypes: []answer{streamed}, Queries: []*prompb.Query{p}}
	resp, err := postRead(context.Background(), url, req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var order []labels.Labels
	err = eachFrame(resp, func(frame *prompb.ChunkedReadResponse) error {
		if n := len(frame.ChunkedSeries); n != 1 {
			return fmt.Errorf("a frame holds %d series", n)
		}
		order = append(order, fromWire(frame.ChunkedSeries[0].Labels))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range order[:max(0, len(order)-1)] {
		if labels.Compare(order[i], order[i+1]) >= 0 {
			t.Fatalf("series %s comes before %s", order[i], order[i+1])
		}
	}
}

// mustMatchers parses matchers written as alternating name, operator, value.
func mustMatchers(t testing.TB, parts ...string) []*labels.Matcher {
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
