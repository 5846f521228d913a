package remotetest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	upstream "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/remote/wire/wiretest"
)

// Frames decodes a streamed answer.
func Frames(t testing.TB, body string) (all []*prompb.ChunkedReadResponse) {
	t.Helper()
	r := upstream.NewChunkedReader(strings.NewReader(body), 50_000_000, nil)
	for {
		msg := new(prompb.ChunkedReadResponse)
		switch err := r.NextProto(msg); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}
		all = append(all, msg)
	}
}

// ValueText writes a value so that two are the same exactly if their texts are.
func ValueText(t, st int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram) string {
	kind := "float"
	switch {
	case h != nil:
		kind, fh = "integer", h.ToFloat(nil)
	case fh == nil:
		return fmt.Sprintf("%d since %d: %x", t, st, math.Float64bits(v))
	}
	bits := fmt.Sprintf("%x", math.Float64bits(fh.Sum))
	if value.IsStaleNaN(fh.Sum) {
		return fmt.Sprintf("%d since %d: %s stale", t, st, kind) // nothing else counts
	}
	fh = fh.Copy().Compact(0)
	return fmt.Sprintf("%d since %d: %s %s %t %s %d %v", t, st, kind, bits, fh.CounterResetHint == histogram.GaugeType, fh, fh.Schema, fh.CustomValues)
}

// StreamedTexts reads the values that a query asks for, likewise.
func StreamedTexts(t *testing.T, base, agent string, q *prompb.Query) (texts []string) {
	t.Helper()
	req := &prompb.ReadRequest{AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}, Queries: []*prompb.Query{q}}
	got := Send(t, http.MethodPost, base+"/read", http.Header{"User-Agent": {agent}}, snappy.Encode(nil, wiretest.Marshal(t, req)))
	got.WantStatus(t, 200)
	for _, frame := range Frames(t, got.Body) {
		for _, c := range frame.ChunkedSeries[0].Chunks {
			chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
			if err != nil {
				t.Fatal(err)
			}
			it := chunk.Iterator(nil)
			starts := 0
			for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
				if it.AtT() < c.MinTimeMs || it.AtT() > c.MaxTimeMs {
					t.Errorf("a chunk of [%d, %d] holds %d", c.MinTimeMs, c.MaxTimeMs, it.AtT())
				}
				if it.AtST() != 0 {
					starts++
				}
				texts = append(texts, IteratorText(kind, it))
			}
			if plain := c.Type <= prompb.Chunk_FLOAT_HISTOGRAM; plain != (starts == 0) {
				t.Errorf("a chunk of type %s has %d start timestamps", c.Type, starts)
			}
		}
	}
	return texts
}

func IteratorText(kind chunkenc.ValueType, it chunkenc.Iterator) string {
	switch kind {
	case chunkenc.ValHistogram:
		at, h := it.AtHistogram(nil)
		return ValueText(at, it.AtST(), 0, h, nil)
	case chunkenc.ValFloatHistogram:
		at, fh := it.AtFloatHistogram(nil)
		return ValueText(at, it.AtST(), 0, nil, fh)
	}
	at, v := it.At()
	return ValueText(at, it.AtST(), v, nil, nil)
}
