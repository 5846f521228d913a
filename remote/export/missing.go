package export

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Missing returns the samples that one series has in [mint, maxt], in milliseconds, at times at which another one has none, and how many they are. The result is nil if
// there are none. other may be nil. Both are read once.
func Missing(one, other storage.ChunkSeries, mint, maxt int64) (missing storage.ChunkSeries, n int64, err error) {
	first, err := samplesOf(one)
	if err != nil {
		return nil, 0, err
	}
	has := chunkenc.NewNopIterator()
	if other != nil {
		second, err := samplesOf(other)
		if err != nil {
			return nil, 0, err
		}
		has = clipped{second, mint, maxt}.Iterator(nil)
	}
	var all []chunks.Sample
	it := clipped{first, mint, maxt}.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		t := it.AtT()
		if has.Seek(t) != chunkenc.ValNone && has.AtT() == t {
			continue
		}
		s := sample{t: t, st: it.AtST(), kind: kind}
		switch kind {
		case chunkenc.ValFloat:
			_, s.f = it.At()
		case chunkenc.ValHistogram:
			_, s.h = it.AtHistogram(nil)
		case chunkenc.ValFloatHistogram:
			_, s.fh = it.AtFloatHistogram(nil)
		default:
			return nil, 0, fmt.Errorf("series %s: a sample of type %v", one.Labels(), kind)
		}
		all = append(all, s)
	}
	if err := errors.Join(it.Err(), has.Err()); err != nil || len(all) == 0 {
		return nil, 0, err
	}
	return storage.NewSeriesToChunkEncoder(storage.NewListSeries(one.Labels(), all)), int64(len(all)), nil
}

// A sample is one of a list.
type sample struct {
	t, st int64
	kind  chunkenc.ValueType
	f     float64
	h     *histogram.Histogram
	fh    *histogram.FloatHistogram
}

var _ chunks.Sample = sample{}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return s.st }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return s.h }
func (s sample) FH() *histogram.FloatHistogram { return s.fh }
func (s sample) Type() chunkenc.ValueType      { return s.kind }

// Copy implements chunks.Sample.
func (s sample) Copy() chunks.Sample {
	if s.h != nil {
		s.h = s.h.Copy()
	}
	if s.fh != nil {
		s.fh = s.fh.Copy()
	}
	return s
}
