package history

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/series/rollup"
)

// rolledTarget is a store that says that it takes only rollups of some days.
type rolledTarget struct {
	*Store
	rolled int64
}

func (s rolledTarget) Rolled(context.Context) (int64, error) { return s.rolled, nil }

func (s rolledTarget) NewWriter(ctx context.Context, u Unit) (Writer, error) {
	u.Rolled = false // the store has no rollups
	return s.Store.NewWriter(ctx, u)
}

// TestCopyRolled: a series that the target refuses of days of rollups counts as a difference, as one of other days does.
func TestCopyRolled(t *testing.T) {
	for _, test := range []struct {
		value     string
		different int
	}{{"y", 0}, {strings.Repeat("y", 5000), 1}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
			c := line(t, map[string]string{"x": "y"}, start+1).(*listSeries).chunks[0]
			of := prompb.ChunkedSeries{
				Labels: []prompb.Label{{Name: "__name__", Value: "a"}, {Name: "x", Value: test.value}},
				Chunks: []prompb.Chunk{{MinTimeMs: c.MinTime, MaxTimeMs: c.MaxTime, Type: prompb.Chunk_XOR, Data: c.Chunk.Bytes()}},
			}
			frame, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{&of}}).Marshal()
			if err == nil {
				_, err = remote.NewChunkedWriter(w, w.(http.Flusher)).Write(frame)
			}
			if err != nil {
				t.Error(err)
			}
		}))
		sel := Selection{Mint: start, Maxt: start + UnitSpan}
		source, err := NewRemoteRead(Server{URL: server.URL}, sel)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := Copy(t.Context(), CopyConfig{
			Source: source, Selection: sel, Target: rolledTarget{newStore(t), rollup.DayOf(start) + rollup.Day}, ID: "test",
			Same: func(context.Context, Unit) (bool, error) { return true, nil },
		}, func(Copied) {})
		if err != nil || copied.Different != test.different || copied.Units != copied.Same+copied.Different {
			t.Errorf("%+v, %v, want %d that differ", copied, err, test.different)
		}
		if err := source.Close(); err != nil {
			t.Error(err)
		}
		server.Close()
	}
}
