package history

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// TestJoined: a series that a server divides between frames comes as one. After an answer that breaks off its last series, which may
// lack samples, does not come.
func TestJoined(t *testing.T) {
	var isCut atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		frames := remote.NewChunkedWriter(w, w.(http.Flusher))
		for i, name := range []string{"a", "b", "b", "b", "c"} {
			of := prompb.ChunkedSeries{Labels: []prompb.Label{{Name: "__name__", Value: name}}}
			for _, c := range line(t, map[string]string{"x": name}, start+int64(2*i), start+int64(2*i)+1).(*listSeries).chunks {
				of.Chunks = append(of.Chunks, prompb.Chunk{MinTimeMs: c.MinTime, MaxTimeMs: c.MaxTime, Type: prompb.Chunk_XOR, Data: c.Chunk.Bytes()})
			}
			frame, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{&of}}).Marshal()
			if err == nil {
				_, err = frames.Write(frame)
			}
			if err != nil {
				t.Error(err)
			}
			if isCut.Load() && i == 2 {
				frames.Close()
				panic(http.ErrAbortHandler)
			}
		}
	}))
	defer server.Close()
	source, err := NewRemoteRead(Server{URL: server.URL}, all())
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	readAll := func() (got []string, err error) {
		r, err := source.Open(t.Context(), Unit{Start: start, Limit: start + UnitSpan})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for r.Next() {
			of := r.At().Labels().Get(labels.MetricName)
			it := r.At().Iterator(nil)
			for it.Next() {
				of += fmt.Sprintf(" %d-%d", it.At().MinTime-start, it.At().MaxTime-start)
			}
			if it.Err() != nil {
				t.Error(it.Err())
			}
			got = append(got, of)
		}
		return got, r.Err()
	}
	if got, err := readAll(); err != nil || !slices.Equal(got, []string{"a 0-1", "b 2-3 4-5 6-7", "c 8-9"}) {
		t.Errorf("%q, %v", got, err)
	}
	isCut.Store(true)
	if got, err := readAll(); temporaryOf(err) == nil || !slices.Equal(got, []string{"a 0-1"}) {
		t.Errorf("cut: %q, %v", got, err)
	}
}

// TestRolledPart: of a series that cannot be read to its end no rollups are written, as those of a part would stay. Samples are.
func TestRolledPart(t *testing.T) {
	s := newStore(t)
	client := serve(t, s, func(next http.Handler) http.Handler { return next })
	whole := line(t, map[string]string{"__name__": "a"}, start, start+1)
	failing := &storage.ChunkSeriesEntry{Lset: whole.Labels(), ChunkIteratorFn: func(chunks.Iterator) chunks.Iterator {
		return failingIterator{whole.Iterator(nil)}
	}}
	for _, rolled := range []bool{false, true} {
		u := Unit{Start: start, Limit: start + UnitSpan, Rolled: rolled}
		want := int64(2)
		if rolled {
			want = 0
		}
		history, err := s.Engine.History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		remote, err := client.NewWriter(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []Writer{&storeWriter{Writer: history, unit: u}, remote} {
			if err := w.Write(t.Context(), failing); !errors.As(err, new(*DamageError)) {
				t.Errorf("%T: %v", w, err)
			}
			if c, isClient := w.(*clientWriter); isClient {
				if isSent := c.body.Len() > 0; isSent == rolled {
					t.Errorf("client, rolled %v: %d bytes", rolled, c.body.Len())
				}
			} else if got := w.Counts().Samples; got != want {
				t.Errorf("store, rolled %v: %d samples, want %d", rolled, got, want)
			}
		}
	}
}

type failingIterator struct{ chunks.Iterator }

func (failingIterator) Err() error { return errors.New("damaged") }
