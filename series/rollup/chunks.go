package rollup

import (
	"encoding/binary"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/merge"
)

// A chunkReader reads the histograms of columnChunks, one after the other.
type chunkReader struct {
	// rest are the chunks after the open one, of which left histograms are not read.
	rest  []byte
	chunk chunkenc.Chunk
	left  int
	it    chunkenc.Iterator
}

// open opens the next chunk, if the open one is read.
func (r *chunkReader) open() error {
	if r.left > 0 {
		return nil
	}
	if len(r.rest) < 2 {
		return corrupt("it lacks histograms")
	}
	size, n := binary.Uvarint(r.rest[1:])
	if n <= 0 || size > uint64(len(r.rest)-1-n) {
		return corrupt("a chunk is not whole")
	}
	encoding, data := r.rest[0], r.rest[1+n:][:size:size]
	if e := chunkenc.Encoding(encoding); e != chunkenc.EncHistogram && e != chunkenc.EncFloatHistogram {
		return corrupt("a chunk of encoding %d", encoding)
	}
	opened, err := merge.HistogramChunk(encoding, data)
	if err != nil {
		return corrupt("%v", err)
	}
	r.rest, r.chunk, r.left = r.rest[1+n+int(size):], opened, opened.NumSamples()
	if r.left == 0 {
		return corrupt("an empty chunk")
	}
	r.it = opened.Iterator(r.it)
	return nil
}

// skip passes n histograms. Chunks that are passed as a whole are not decoded.
func (r *chunkReader) skip(n int) error {
	for ; n > 0; n-- {
		if err := r.open(); err != nil {
			return err
		}
		if n >= r.left && r.left == r.chunk.NumSamples() {
			n, r.left = n-r.left+1, 0
			continue
		}
		if err := r.move(); err != nil {
			return err
		}
	}
	return nil
}

// move moves to the next histogram of the open chunk.
func (r *chunkReader) move() error {
	if r.left--; r.it.Next() == chunkenc.ValNone {
		return corrupt("a chunk lacks histograms: %v", r.it.Err())
	}
	return nil
}

// next returns the next histogram and its time: as it was written if asIs is set, else as floatOf does.
func (r *chunkReader) next(asIs bool) (t int64, v cell.Value, err error) {
	if err = r.open(); err == nil {
		err = r.move()
	}
	if err != nil {
		return 0, v, err
	}
	if !asIs {
		t, v.FloatHistogram = r.it.AtFloatHistogram(nil)
		if v.FloatHistogram.CounterResetHint != histogram.GaugeType {
			v.FloatHistogram.CounterResetHint = histogram.UnknownCounterReset
		}
		return t, v, r.it.Err()
	}
	hint := func(h histogram.CounterResetHint) histogram.CounterResetHint {
		if r.left+1 == r.chunk.NumSamples() && h == histogram.UnknownCounterReset && merge.SaysReset(r.chunk) {
			return histogram.CounterReset
		}
		return h
	}
	if r.chunk.Encoding() == chunkenc.EncHistogram {
		t, v.Histogram = r.it.AtHistogram(nil)
		v.Histogram.CounterResetHint = hint(v.Histogram.CounterResetHint)
		return t, v, r.it.Err()
	}
	t, v.FloatHistogram = r.it.AtFloatHistogram(nil)
	v.FloatHistogram.CounterResetHint = hint(v.FloatHistogram.CounterResetHint)
	return t, v, r.it.Err()
}
