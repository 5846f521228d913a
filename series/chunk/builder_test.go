package chunk_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/seriestest"
)

// TestAppendRegular: the chunks are those that Prometheus makes of their samples, and
// none is much smaller than the others.
func TestAppendRegular(t *testing.T) {
	const longest = 600
	for _, n := range []int{1, 2, 3, 120, longest - 1, longest, longest + 1, 2 * longest, 2*longest + 1, dense.MaxSamples} {
		for _, c := range seriestest.Shapes(seriestest.NewRand(t), n) {
			if regular, _ := seriestest.Every(c.Ts[0], 15_000, n); !slices.Equal(c.Ts, regular) {
				continue
			}
			var b chunk.Builder
			space := b.AppendRegular(nil, c.Ts[0], 15_000, c.Vs)
			space = b.AppendRegular(space, c.Ts[n-1]+1, 15_000, c.Vs)
			clear(space[:cap(space)])
			size, half := 0, len(b.Chunks)/2
			ts, vs := c.Ts, c.Vs
			for i, got := range b.Chunks[:half] {
				m := got.Chunk.NumSamples()
				if m > longest || half > 1 && m < longest/2 || got.MinTime != ts[0] || got.MaxTime != ts[m-1] {
					t.Fatalf("%d of %s: chunk %d has %d samples from %d to %d", n, c.Name, i, m, got.MinTime, got.MaxTime)
				}
				if want := seriestest.UpstreamXOR(t, ts[:m], vs[:m]); !bytes.Equal(got.Chunk.Bytes(), want) {
					t.Fatalf("%d of %s: chunk %d is %x, want %x", n, c.Name, i, got.Chunk.Bytes(), want)
				}
				size += len(got.Chunk.Bytes()) + len(b.Chunks[half+i].Chunk.Bytes())
				ts, vs = ts[m:], vs[m:]
			}
			if len(ts) > 0 || size != b.Bytes() {
				t.Fatalf("%d of %s: %d samples are missing; %d bytes, want %d", n, c.Name, len(ts), b.Bytes(), size)
			}
		}
	}
}
