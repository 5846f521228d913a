package chunk

import (
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/xor"
)

// floatSize is what a sample of a Decoded takes in memory.
const floatSize = 16

// A Decoded is floats that are not encoded, as a chunk of upstream's: for readers that
// want the samples and not the bytes. Its encoding is XOR, and Bytes encodes it anew
// at each call. It is never written to, so several goroutines may use it.
type Decoded struct {
	ts []int64
	vs []float64
}

const (
	// firstSlab and maxSlab are how many samples the first slab of a Space has, and those
	// after some.
	firstSlab = 1 << 10
	maxSlab   = 1 << 16
)

// A Space is memory for the samples of Decoded chunks. The zero value is empty. It is not
// safe for concurrent use.
type Space struct {
	slabs []slab
	// at is the slab from which memory is taken, and used how much of it is.
	at, used int
}

// A slab is memory for as many times as values.
type slab struct {
	ts []int64
	vs []float64
}

// Reset takes all memory back: chunks made in it must no longer be used.
func (s *Space) Reset() { s.at, s.used = 0, 0 }

// decoded makes a chunk of a copy of samples.
func (s *Space) decoded(ts []int64, vs []float64) *Decoded {
	n := len(ts)
	for s.at < len(s.slabs) && len(s.slabs[s.at].ts)-s.used < n {
		s.at, s.used = s.at+1, 0
	}
	if s.at == len(s.slabs) {
		size := max(n, min(maxSlab, firstSlab<<min(s.at, 16)))
		s.slabs = append(s.slabs, slab{make([]int64, size), make([]float64, size)})
	}
	from, to := s.used, s.used+n
	s.used = to
	c := &Decoded{s.slabs[s.at].ts[from:to:to], s.slabs[s.at].vs[from:to:to]}
	copy(c.ts, ts)
	copy(c.vs, vs)
	return c
}

// Floats returns the samples: times in milliseconds, ascending, and as many
// values. They belong to the chunk.
func (c *Decoded) Floats() (ts []int64, vs []float64) { return c.ts, c.vs }

// NumSamples implements chunkenc.Chunk.
func (c *Decoded) NumSamples() int { return len(c.ts) }

// Encoding implements chunkenc.Chunk.
func (c *Decoded) Encoding() chunkenc.Encoding { return chunkenc.EncXOR }

// Bytes implements chunkenc.Chunk.
func (c *Decoded) Bytes() []byte { return xor.Append(nil, c.ts, c.vs) }

// Appender implements chunkenc.Chunk. It appends to a copy: the
// chunk itself is complete.
func (c *Decoded) Appender() (chunkenc.Appender, error) {
	chunk, err := chunkenc.FromData(chunkenc.EncXOR, c.Bytes())
	if err != nil {
		return nil, err
	}
	return chunk.Appender()
}

// Compact implements chunkenc.Chunk.
func (c *Decoded) Compact() {}

// Reset implements chunkenc.Chunk. Data that is not of encoding XOR leaves it
// empty.
func (c *Decoded) Reset(data []byte) { c.ts, c.vs, _ = xor.Decode(data, nil, nil) }

// Iterator implements chunkenc.Chunk. It uses it again if it is one of its own.
func (c *Decoded) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	fi, ok := it.(*floatIterator)
	if !ok {
		fi = new(floatIterator)
	}
	*fi = floatIterator{ts: c.ts, vs: c.vs, at: -1}
	return fi
}

// floatIterator stands at the sample at, which is -1 in front of the first.
type floatIterator struct {
	ts []int64
	vs []float64
	at int
}

// Next implements chunkenc.Iterator.
func (it *floatIterator) Next() chunkenc.ValueType {
	if it.at+1 >= len(it.ts) {
		it.at = len(it.ts)
		return chunkenc.ValNone
	}
	it.at++
	return chunkenc.ValFloat
}

// A timestamp is an int64 by another name: go vet takes a Seek of an int64 for one
// of io.Seeker's.
type timestamp = int64

func (it *floatIterator) Seek(t timestamp) chunkenc.ValueType {
	it.at = max(it.at, 0)
	if it.at < len(it.ts) && it.ts[it.at] < t {
		n, _ := slices.BinarySearch(it.ts[it.at:], t)
		it.at += n
	}
	if it.at >= len(it.ts) {
		return chunkenc.ValNone
	}
	return chunkenc.ValFloat
}

func (it *floatIterator) At() (int64, float64) { return it.ts[it.at], it.vs[it.at] }

func (it *floatIterator) AtT() int64 { return it.ts[it.at] }

// AtST implements chunkenc.Iterator. The start is unknown.
func (*floatIterator) AtST() int64 { return 0 }

// AtHistogram implements chunkenc.Iterator. There are none.
func (*floatIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	panic("chunk: a chunk of floats was asked for a histogram")
}

// AtFloatHistogram implements chunkenc.Iterator. There are none.
func (*floatIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	panic("chunk: a chunk of floats was asked for a histogram")
}

func (*floatIterator) Err() error { return nil }
