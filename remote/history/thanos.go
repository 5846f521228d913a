package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/xor"
)

// encodingAggregates is that of the chunks of blocks that Thanos has downsampled.
const encodingAggregates = chunkenc.Encoding(0xff)

// The aggregates of a chunk, in their order.
const (
	aggregateCount = iota
	aggregateSum
	aggregateMin
	aggregateMax
	aggregateCounter
	numAggregates
)

// errHistograms says that a chunk has aggregates of native histograms, which rollups do not tell. Only their numbers of samples are known.
var errHistograms = errors.New("aggregates of native histograms")

// An aggregateChunk is a chunk of a block that Thanos has downsampled. It has no samples of its own: each of its aggregates is a chunk, which has the
// time of the last millisecond of a span of the resolution, [k*span, (k+1)*span), or of the last sample where the chunk ends before that. That of the counter begins with the first sample, and ends
// with the last one. Its values rise over resets.
//
// Bytes has the span before what Thanos has, as a uvarint, in milliseconds.
type aggregateChunk struct {
	opaqueChunk
	span int64
	// from is where the chunks begin in data.
	from int
}

// newAggregateChunk returns the chunk whose Bytes are data.
func newAggregateChunk(data []byte) (*aggregateChunk, error) {
	c := &aggregateChunk{opaqueChunk: opaqueChunk{encoding: encodingAggregates}}
	if c.Reset(data); !isThanosSpan(c.span) {
		return nil, fmt.Errorf("a downsampled chunk of a resolution of %d ms", c.span)
	}
	return c, nil
}

// isThanosSpan says whether a span is one that Thanos downsamples to, in milliseconds.
func isThanosSpan(span int64) bool {
	return slices.ContainsFunc(rollup.Downsampled, func(r rollup.Resolution) bool { return r.Span() == span })
}

// Reset implements chunkenc.Chunk.
func (c *aggregateChunk) Reset(stream []byte) {
	span, n := binary.Uvarint(stream) // 0 if it is not whole
	c.data, c.span, c.from = stream, int64(span), n
}

// resolution returns that of the spans.
func (c *aggregateChunk) resolution() rollup.Resolution {
	return rollup.Resolution(slices.IndexFunc(rollup.Downsampled, func(r rollup.Resolution) bool { return r.Span() == c.span })) + rollup.Finest
}

// A points is one aggregate of a chunk, decoded.
type points struct {
	times  []int64
	values []float64
}

// aggregates returns those of all spans. The error is errHistograms, or says what is damaged.
func (c *aggregateChunk) aggregates() (all []rollup.Aggregate, err error) {
	var of [numAggregates]points
	rest, isOfHistograms := c.data[c.from:], false
	for i := range of {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size >= uint64(len(rest)-n) && size > 0 {
			return nil, fmt.Errorf("aggregate %d is not whole", i)
		}
		if rest = rest[n:]; size == 0 {
			continue
		}
		encoding, data := chunkenc.Encoding(rest[0]), rest[1:1+size]
		rest = rest[1+size:]
		if encoding == chunkenc.EncHistogram || encoding == chunkenc.EncFloatHistogram {
			isOfHistograms = true
			continue
		}
		if encoding != chunkenc.EncXOR {
			return nil, fmt.Errorf("aggregate %d has encoding %d", i, encoding)
		}
		if of[i].times, of[i].values, err = xor.Decode(data, nil, nil); err != nil {
			return nil, fmt.Errorf("aggregate %d: %w", i, err)
		}
	}
	times := of[aggregateCount].times
	for i := aggregateSum; i <= aggregateMax && !isOfHistograms; i++ {
		if !slices.Equal(of[i].times, times) {
			return nil, fmt.Errorf("aggregate %d has %d times, not those of the counts, of which there are %d", i, len(of[i].times), len(times))
		}
	}
	counter := of[aggregateCounter]
	hasCounter := len(times) > 0 && len(counter.times) == len(times)+2 && slices.Equal(counter.times[1:len(times)+1], times)
	for i, t := range times {
		start := t - (t%c.span+c.span)%c.span
		n := of[aggregateCount].values[i]
		if !(n >= 1 && n <= float64(c.span)) || n != math.Trunc(n) {
			return nil, fmt.Errorf("%g samples up to %d, in %d ms", n, t, c.span)
		}
		// A bucket of ours has its end and not its start.
		a := rollup.Aggregate{After: start, To: max(t, start+1), Samples: int64(n)}
		if t == start+c.span-1 {
			a.To = start + c.span
		}
		if isOfHistograms {
			all = append(all, a)
			continue
		}
		a.Sum, a.Least, a.Greatest = of[aggregateSum].values[i], of[aggregateMin].values[i], of[aggregateMax].values[i]
		if hasCounter {
			a.HasRise, a.Rise = true, counter.values[i+1]-counter.values[i]
			if i == 0 {
				a.HasFirst, a.First, a.FirstTime = true, counter.values[0], counter.times[0]
			}
			if i == len(times)-1 {
				a.HasLast, a.Last = true, counter.values[i+2]
			}
		}
		all = append(all, a)
	}
	if isOfHistograms {
		return all, errHistograms
	}
	return all, nil
}

// aggregatePool reads the chunks of a block that Thanos has downsampled to a span.
type aggregatePool struct{ span int64 }

// Get implements chunkenc.Pool.
func (p aggregatePool) Get(e chunkenc.Encoding, data []byte) (chunkenc.Chunk, error) {
	if e != encodingAggregates { // of series that it leaves as they are there are none
		return nil, fmt.Errorf("a chunk of encoding %d in a downsampled block", e)
	}
	return newAggregateChunk(append(binary.AppendUvarint(nil, uint64(p.span)), data...))
}

// Put implements chunkenc.Pool.
func (aggregatePool) Put(chunkenc.Chunk) error { return nil }

// chunkOf returns a chunk of a frame, see Handler.
func chunkOf(e chunkenc.Encoding, data []byte) (chunkenc.Chunk, error) {
	switch e {
	case encodingAggregates:
		return newAggregateChunk(data)
	case encodingStored:
		return newStoredChunk(data)
	}
	return chunkenc.FromData(e, data)
}

// span returns the resolution to which Thanos has downsampled the block, in milliseconds. Of one with samples it is 0.
func (b *block) span() int64 { return b.meta.Thanos.Downsample.Resolution }

// chosen returns of blocks with the same external labels those that a unit, [start, limit), is read from: those of the resolution that has most of the time, and
// of several the finest.
func chosen(all []*block, start, limit int64) (of []*block) {
	var most int64
	slices.SortFunc(all, func(a, b *block) int {
		return cmp.Or(cmp.Compare(a.span(), b.span()), cmp.Compare(a.meta.MinTime, b.meta.MinTime), cmp.Compare(a.meta.MaxTime, b.meta.MaxTime), a.meta.ULID.Compare(b.meta.ULID))
	})
	for len(all) > 0 {
		span, covered, end, n := all[0].span(), int64(0), start, 0
		for ; n < len(all) && all[n].span() == span; n++ {
			from, to := max(all[n].meta.MinTime, end), min(all[n].meta.MaxTime, limit)
			covered += max(0, to-from)
			end = max(end, to)
		}
		if of == nil || covered > most {
			most, of = covered, all[:n]
		}
		all = all[n:]
	}
	return of
}

// onlySamples returns an error about a downsampled block of whose time samples are kept after rolled, or nil.
func (b *block) onlySamples(rolled int64) error {
	switch {
	case b.span() == 0 || b.meta.MaxTime <= rolled+1:
		return nil
	case b.meta.MinTime > rolled:
		return &LeftOut{fmt.Errorf("%s is downsampled by Thanos, and the samples of its time are kept here: import the blocks that it was made of, or let an adapter run with a shorter --retention.resolution-raw", b.dir)}
	}
	return &LeftOut{fmt.Errorf("%s is downsampled by Thanos: it is imported up to %s, and after that the samples are kept here, which the blocks have that it was made of", b.dir, time.UnixMilli(rolled).UTC().Format(time.RFC3339))}
}

// pool returns what reads the chunks of the block, or nil for that of upstream.
func (b *block) pool() chunkenc.Pool {
	if b.span() == 0 {
		return nil
	}
	return aggregatePool{b.span()}
}
