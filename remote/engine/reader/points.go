package reader

import (
	"slices"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

// A PointSeries is a series of which buckets were read, too.
type PointSeries interface {
	storage.ChunkSeries
	// AppendPoints appends what is known of the times that were asked for. Start timestamps are left out.
	AppendPoints(*rollup.Points) error
	// Plan says what was read at which resolution.
	Plan() *rollup.Plan
	// HasBuckets says whether there is anything but samples.
	HasBuckets() bool
}

// rolledSeries is a series of which rollups were read.
type rolledSeries struct {
	storage.ChunkSeriesEntry
	built chunkBuilder
	plan  *rollup.Plan
}

var _ PointSeries = (*rolledSeries)(nil)

// Plan implements PointSeries.
func (s *rolledSeries) Plan() *rollup.Plan { return s.plan }

// HasBuckets implements PointSeries.
func (s *rolledSeries) HasBuckets() bool { return s.built.hasRollups }

// AppendPoints implements PointSeries.
func (s *rolledSeries) AppendPoints(p *rollup.Points) error {
	raw := rawSamples{it: s.Iterator(nil)}
	for _, span := range s.plan.Spans {
		if span.Resolution == rollup.Raw {
			if err := raw.appendTo(p, span.After, span.To); err != nil {
				return err
			}
			continue
		}
		for piece := range dayPieces(span) {
			if err := s.appendPiece(p, piece, &raw); err != nil {
				return err
			}
		}
	}
	return raw.it.Err()
}

// appendPiece appends what is known of a part of a day.
func (s *rolledSeries) appendPiece(p *rollup.Points, piece dayPiece, raw *rawSamples) error {
	cells, finer := s.built.rollupsOf(piece), s.built.finerOf(piece)
	if len(cells) == 0 && s.plan.HasRaw(piece.day) {
		cells = finer // which are only there if they tell all
	}
	if len(cells) == 0 {
		return raw.appendTo(p, piece.after, piece.to)
	}
	for _, c := range cells {
		if err := appendCell(p, c, finer, piece); err != nil {
			return err
		}
	}
	return nil
}

// appendCell appends what is known of a part of a day from a cell, and if that is of hours from the one of finer in the same row.
func appendCell(p *rollup.Points, c rollupCell, finer []rollupCell, piece dayPiece) error {
	if !rollup.HasBuckets(c.value) {
		p.AppendHole(piece.after+1, piece.to+1)
		return nil
	}
	if c.resolution == rollup.FiveMinutes {
		return p.AppendCell(c.resolution, c.day, c.value, piece.after, piece.to)
	}
	var fine []byte
	for _, f := range finer {
		if f.base == c.base && rollup.HasBuckets(f.value) {
			fine = f.value
		}
	}
	return p.AppendCells(c.day, c.value, fine, piece.after, piece.to)
}

// rawSamples are the samples of a series, read up to a time.
type rawSamples struct {
	it chunks.Iterator
	// ts and vs are floats, and histograms, unless nil, stands at a histogram.
	ts         []int64
	vs         []float64
	histograms chunkenc.Iterator
	// decoded is memory for floats of encoded chunks, which floats iterates over.
	decoded struct {
		ts []int64
		vs []float64
	}
	floats chunkenc.Iterator
}

// more makes sure that there is a sample, and returns false if there is none.
func (r *rawSamples) more() (ok bool, err error) {
	for len(r.ts) == 0 && r.histograms == nil && r.it.Next() {
		switch c := r.it.At().Chunk.(type) {
		case *chunk.Decoded:
			r.ts, r.vs = c.Floats()
		default:
			if isFloats := c.Encoding() == chunkenc.EncXOR || c.Encoding() == chunkenc.EncXOR2; isFloats {
				err = r.decode(c)
			} else {
				r.histograms = c.Iterator(nil)
				err = r.nextHistogram()
			}
			if err != nil {
				return false, err
			}
		}
	}
	return len(r.ts) > 0 || r.histograms != nil, nil
}

// decode makes ts and vs the floats of an encoded chunk: one with start timestamps, or one of many samples of the series.
func (r *rawSamples) decode(c chunkenc.Chunk) error {
	ts, vs := r.decoded.ts[:0], r.decoded.vs[:0]
	r.floats = c.Iterator(r.floats)
	for r.floats.Next() != chunkenc.ValNone {
		t, v := r.floats.At()
		ts, vs = append(ts, t), append(vs, v)
	}
	r.decoded.ts, r.decoded.vs = ts, vs
	r.ts, r.vs = ts, vs
	return r.floats.Err()
}

func (r *rawSamples) nextHistogram() (err error) {
	if r.histograms.Next() == chunkenc.ValNone {
		err, r.histograms = r.histograms.Err(), nil
	}
	return err
}

// appendTo appends the samples of the times (after, to]. Those before were read, but for one that tells of a reset.
func (r *rawSamples) appendTo(p *rollup.Points, after, to int64) error {
	for {
		if ok, err := r.more(); err != nil || !ok {
			return err
		}
		if len(r.ts) > 0 {
			n, _ := slices.BinarySearch(r.ts, to+1)
			p.Append(r.ts[:n], r.vs[:n])
			if r.ts, r.vs = r.ts[n:], r.vs[n:]; len(r.ts) > 0 {
				return nil
			}
			continue
		}
		t := r.histograms.AtT()
		if t > to {
			return nil
		}
		if t > after {
			p.AppendHistogram(r.histograms.AtFloatHistogram(nil))
		}
		if err := r.nextHistogram(); err != nil {
			return err
		}
	}
}
