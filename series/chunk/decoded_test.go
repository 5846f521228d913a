package chunk_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/seriestest"
	"github.com/promtable/promtable/series/xor"
)

// built makes chunks of floats.
func built(b *chunk.Builder, ts []int64, vs []float64) []chunks.Meta {
	b.AppendFloats(nil, ts, vs)
	return b.Chunks
}

// drain reads what is left of an iterator.
func drain(t testing.TB, it chunkenc.Iterator) (ts []int64, vs []float64) {
	t.Helper()
	for it.Next() == chunkenc.ValFloat {
		at, v := it.At()
		if it.AtT() != at || it.AtST() != 0 {
			t.Fatalf("%d is also %d, from %d on", at, it.AtT(), it.AtST())
		}
		ts, vs = append(ts, at), append(vs, v)
	}
	if err := it.Err(); err != nil || it.Next() != chunkenc.ValNone {
		t.Fatalf("the end is none: %v", err)
	}
	return ts, vs
}

// TestFloatChunk: it is what upstream's decoded of the same samples is.
func TestFloatChunk(t *testing.T) {
	for _, n := range []int{1, 2, 240, 241, 1920} {
		for _, c := range seriestest.Shapes(seriestest.NewRand(t), n) {
			chunks := built(&chunk.Builder{Decoded: new(chunk.Space)}, c.Ts, c.Vs)
			if len(chunks) != 1 || chunks[0].MinTime != c.Ts[0] || chunks[0].MaxTime != c.Ts[n-1] {
				t.Fatalf("%s: %d chunks of %d samples, the first in [%d, %d]", c.Name, len(chunks), n, chunks[0].MinTime, chunks[0].MaxTime)
			}
			decoded := chunks[0].Chunk
			if _, ok := decoded.(*chunk.Decoded); !ok {
				t.Fatalf("a decoded is a %T", decoded)
			}
			if want := seriestest.UpstreamXOR(t, c.Ts, c.Vs); decoded.NumSamples() != n || decoded.Encoding() != chunkenc.EncXOR || !bytes.Equal(decoded.Bytes(), want) {
				t.Errorf("%s: %d samples, encoding %s, bytes %x, want %x", c.Name, decoded.NumSamples(), decoded.Encoding(), decoded.Bytes(), want)
			}
			it := decoded.Iterator(nil)
			for range 2 {
				if ts, vs := drain(t, it); !slices.Equal(ts, c.Ts) || !seriestest.SameBits(vs, c.Vs) {
					t.Errorf("%s: %v, %v, want %v, %v", c.Name, ts, vs, c.Ts, c.Vs)
				}
				if again := decoded.Iterator(it); again != it {
					t.Error("an iterator is not used again")
				}
			}
		}
	}
}

// TestFloatChunkSeek seeks after some samples, and goes on, as in upstream's
// decoded.
func TestFloatChunkSeek(t *testing.T) {
	ts, vs := []int64{10, 20, 21, 40, 50}, []float64{1, 2, 3, 4, 5}
	decoded := built(&chunk.Builder{Decoded: new(chunk.Space)}, ts, vs)[0].Chunk
	upstream, err := chunkenc.FromData(chunkenc.EncXOR, decoded.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for first := range len(ts) + 1 {
		for at := int64(5); at <= 55; at++ {
			got, want := decoded.Iterator(nil), upstream.Iterator(nil)
			for range first {
				got.Next()
				want.Next()
			}
			if g, w := got.Seek(at), want.Seek(at); g != w || g != chunkenc.ValNone && got.AtT() != want.AtT() {
				t.Fatalf("Seek(%d) after %d samples: %s, want %s", at, first, g, w)
			}
			gotT, _ := drain(t, got)
			if wantT, _ := drain(t, want); !slices.Equal(gotT, wantT) {
				t.Errorf("after Seek(%d) after %d samples come %v, want %v", at, first, gotT, wantT)
			}
		}
	}
}

// TestChunkBuilderDecoded: decoded or not, the samples are the same, whatever is
// among them; and only so many stay decoded.
func TestChunkBuilderDecoded(t *testing.T) {
	const n = 200_000
	build := func(b *chunk.Builder) (samples []seriestest.TimedValue) {
		at, space := int64(0), []byte(nil)
		for i := range n / 1000 {
			var ts []int64
			var vs []float64
			for range 999 {
				at += 15_000
				ts, vs = append(ts, at), append(vs, float64(at)/3)
			}
			space = b.AppendFloats(space, ts, vs)
			at += 15_000
			if err := b.Append(at, cell.Value{Float: 1, Start: int64(i % 2 * 5)}); err != nil {
				t.Fatal(err)
			}
		}
		var last int64
		for _, c := range b.Chunks {
			it := c.Chunk.Iterator(nil)
			for it.Next() != chunkenc.ValNone {
				ts, v := it.At()
				samples = append(samples, seriestest.At(ts, cell.Value{Float: v, Start: it.AtST()}))
				last = ts
			}
			if it.Err() != nil || last != c.MaxTime {
				t.Fatalf("%v, a decoded ends at %d, and says at %d", it.Err(), last, c.MaxTime)
			}
		}
		return samples
	}
	var plain, decoded chunk.Builder
	decoded.Decoded = new(chunk.Space)
	want, got := build(&plain), build(&decoded)
	if len(want) != n || !slices.Equal(got, want) {
		t.Errorf("%d samples decoded, %d encoded, or others", len(got), len(want))
	}
	floats := 0
	for _, c := range decoded.Chunks {
		if f, ok := c.Chunk.(*chunk.Decoded); ok {
			floats += f.NumSamples()
		}
	}
	const most = 1<<20/16 + 1000
	if size := decoded.Bytes(); floats < most/2 || floats > most || size > 16*most+plain.Bytes() {
		t.Errorf("%d samples stay decoded, all take %d bytes, and %d encoded", floats, size, plain.Bytes())
	}
}

// TestChunkBuilderKeepsNothing: what was given may be overwritten.
func TestChunkBuilderKeepsNothing(t *testing.T) {
	for _, decoded := range []bool{false, true} {
		var b chunk.Builder
		if decoded {
			b.Decoded = new(chunk.Space)
		}
		ts, vs := []int64{1, 2, 3}, []float64{1, 2, 3}
		space := b.AppendFloats(make([]byte, 0, 1<<10), ts, vs)
		clear(ts)
		clear(vs)
		clear(space[:cap(space)])
		gotT, gotV := drain(t, b.Chunks[0].Chunk.Iterator(nil))
		if !slices.Equal(gotT, []int64{1, 2, 3}) || !seriestest.SameBits(gotV, []float64{1, 2, 3}) {
			t.Errorf("decoded %t: %v, %v", decoded, gotT, gotV)
		}
	}
}

// TestFloatChunkAppender: what is appended is not in the decoded.
func TestFloatChunkAppender(t *testing.T) {
	decoded := built(&chunk.Builder{Decoded: new(chunk.Space)}, []int64{1, 2}, []float64{3, math.NaN()})[0].Chunk
	app, err := decoded.Appender()
	if err != nil {
		t.Fatal(err)
	}
	app.Append(0, 3, 4)
	decoded.Compact()
	if n := decoded.NumSamples(); n != 2 {
		t.Errorf("%d samples", n)
	}
	if decoded.Reset(xor.Append(nil, []int64{5}, []float64{6})); decoded.NumSamples() != 1 {
		t.Errorf("%d samples after Reset, want 1", decoded.NumSamples())
	}
	if decoded.Reset([]byte{1}); decoded.NumSamples() != 0 {
		t.Errorf("%d samples after Reset with what is no decoded", decoded.NumSamples())
	}
}
