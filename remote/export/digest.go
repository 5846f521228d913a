package export

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"maps"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/cell"
)

// Day is the span of a DayDigest, in milliseconds: a day of UTC, which begins at a multiple of it.
const Day int64 = 24 * 60 * 60 * 1000

// A DayDigest tells whether two stores have the same samples in a day. Two are equal if they have the same series, with the same samples at the same times, bit for
// bit. Start timestamps do not count, and of what histograms say of counter resets only that they are gauges: these depend on how
// samples are read.
type DayDigest struct {
	// Start is when the day begins, in milliseconds.
	Start           int64
	Series, Samples int64
	// Sum is the sum of the SHA-256 of each series, by words of 8 bytes, so that it does not depend on their order.
	Sum [4]uint64
}

// String returns the sum as 64 hexadecimal digits.
func (d DayDigest) String() string {
	return fmt.Sprintf("%016x%016x%016x%016x", d.Sum[0], d.Sum[1], d.Sum[2], d.Sum[3])
}

func (d *DayDigest) add(other DayDigest) {
	d.Series += other.Series
	d.Samples += other.Samples
	for i := range d.Sum {
		d.Sum[i] += other.Sum[i]
	}
}

// Digest returns the digests of the days of a selection that have samples, in order of time. If each is set, it is called for each series and day.
func Digest(ctx context.Context, from Source, sel Selection, each func(labels.Labels, DayDigest)) ([]DayDigest, error) {
	if err := sel.check(); err != nil {
		return nil, err
	}
	set, err := sel.series(ctx, from, sel.Mint, sel.Maxt)
	if err != nil {
		return nil, err
	}
	days := make(map[int64]DayDigest)
	var it chunkenc.Iterator
	for set.Next() {
		one := set.At()
		d := daySums{hash: sha256.New(), labels: one.Labels(), add: func(of DayDigest) {
			if each != nil {
				each(one.Labels(), of)
			}
			sum := days[of.Start]
			sum.Start = of.Start
			sum.add(of)
			days[of.Start] = sum
		}}
		it = clipped{one, sel.Mint, sel.Maxt}.Iterator(it)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			d.sample(kind, it)
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("series %s: %w", one.Labels(), err)
		}
		d.end()
	}
	var sums []DayDigest
	for _, start := range slices.Sorted(maps.Keys(days)) {
		sums = append(sums, days[start])
	}
	return sums, set.Err()
}

// daySums makes the digests of a series.
type daySums struct {
	hash   hash.Hash
	labels labels.Labels
	add    func(DayDigest)
	day    DayDigest
	space  []byte
}

func (d *daySums) sample(kind chunkenc.ValueType, it chunkenc.Iterator) {
	t := it.AtT()
	if start := t - mod(t, Day); d.day.Samples == 0 || start != d.day.Start {
		d.end()
		d.day.Start = start
		d.labels.Range(func(l labels.Label) {
			d.space = binary.AppendUvarint(d.space[:0], uint64(len(l.Name)))
			d.space = binary.AppendUvarint(append(d.space, l.Name...), uint64(len(l.Value)))
			d.hash.Write(append(d.space, l.Value...))
		})
	}
	d.space = appendSample(d.space[:0], kind, it)
	d.hash.Write(d.space)
	d.day.Samples++
}

// appendSample appends what two stores have in common of a sample: its time, and its value as a cell.
func appendSample(dst []byte, kind chunkenc.ValueType, it chunkenc.Iterator) []byte {
	var v cell.Value
	switch kind {
	case chunkenc.ValHistogram:
		_, v.Histogram = it.AtHistogram(nil)
	case chunkenc.ValFloatHistogram:
		_, v.FloatHistogram = it.AtFloatHistogram(nil)
	default:
		_, v.Float = it.At()
	}
	v.ForgetResets()
	return cell.Append(binary.BigEndian.AppendUint64(dst, uint64(it.AtT())), v)
}

// samplesOf returns a series as samples.
func samplesOf(s storage.ChunkSeries) (storage.Series, error) {
	set := storage.NewSeriesSetFromChunkSeriesSet(&singleSet{of: s})
	if !set.Next() {
		return nil, set.Err()
	}
	if found := set.At(); found != nil {
		return found, nil
	}
	return storage.NewListSeries(s.Labels(), nil), nil // upstream has none of a series without chunks
}

// A singleSet is a set of one series.
type singleSet struct {
	storage.ChunkSeriesSet
	of    storage.ChunkSeries
	began bool
}

func (s *singleSet) Next() bool {
	isFirst := !s.began
	s.began = true
	return isFirst
}

func (s *singleSet) At() storage.ChunkSeries { return s.of }

func (*singleSet) Err() error { return nil }

// end adds the day, if it has samples.
func (d *daySums) end() {
	if d.day.Samples == 0 {
		return
	}
	d.day.Series = 1
	sum := d.hash.Sum(nil)
	for i := range d.day.Sum {
		d.day.Sum[i] = binary.BigEndian.Uint64(sum[8*i:])
	}
	d.add(d.day)
	d.day = DayDigest{}
	d.hash.Reset()
}
