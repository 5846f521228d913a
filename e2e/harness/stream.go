package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// decodeStream decodes a STREAMED_XOR_CHUNKS answer. It joins the frames of one
// series: Prometheus itself splits them.
func decodeStream(r io.Reader, queries []Query) ([][]TimeSeries, error) {
	results := make([][]TimeSeries, len(queries))
	err := EachFrame(r, func(frame *prompb.ChunkedReadResponse) error {
		i := int(frame.QueryIndex)
		for _, cs := range frame.ChunkedSeries {
			points, err := decodeChunks(cs.Chunks, queries[i])
			if err != nil {
				return err
			}
			s := TimeSeries{fromWire(cs.Labels), points}
			if n := len(results[i]); n > 0 && labels.Equal(results[i][n-1].Labels, s.Labels) {
				results[i][n-1].Points = append(results[i][n-1].Points, points...)
				continue
			}
			results[i] = append(results[i], s)
		}
		return nil
	})
	for i := range results {
		SortSeries(results[i])
		results[i] = WithoutEmpty(results[i])
	}
	return results, err
}

// EachFrame calls fn for each frame of a streamed answer.
func EachFrame(r io.Reader, fn func(*prompb.ChunkedReadResponse) error) error {
	frames := remote.NewChunkedReader(r, 50_000_000, nil)
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

// decodeChunks returns the points that lie in the range of q: chunks may hold
// more.
func decodeChunks(chunks []prompb.Chunk, q Query) ([]Point, error) {
	var points []Point
	for _, c := range chunks {
		chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, err
		}
		it := chunk.Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			p := pointOf(kind, it)
			if p.T < c.MinTimeMs || p.T > c.MaxTimeMs {
				return nil, fmt.Errorf("a chunk of [%d, %d] holds %d", c.MinTimeMs, c.MaxTimeMs, p.T)
			}
			if p.T >= q.Mint && p.T <= q.Maxt {
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
func pointOf(kind chunkenc.ValueType, it chunkenc.Iterator) Point {
	switch kind {
	case chunkenc.ValHistogram:
		t, h := it.AtHistogram(nil)
		return HistogramPoint(t, it.AtST(), h, nil)
	case chunkenc.ValFloatHistogram:
		t, fh := it.AtFloatHistogram(nil)
		return HistogramPoint(t, it.AtST(), nil, fh)
	}
	t, v := it.At()
	return Point{T: t, Bits: math.Float64bits(v), Start: it.AtST()}
}

// CheckStream wants what a client of a streamed answer relies on: one series in
// a frame, whole, and series in ascending order.
func CheckStream(t testing.TB, url string, q Query) {
	t.Helper()
	resp, err := PostRead(context.Background(), url, Streamed, q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var order []labels.Labels
	err = EachFrame(resp.Body, func(frame *prompb.ChunkedReadResponse) error {
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
