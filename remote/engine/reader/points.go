package reader

import (
	"slices"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

// rolledSeries is a series of which rollups were read.
type rolledSeries struct {
	storage.ChunkSeriesEntry
	built chunkBuilder
	plan  *rollup.Plan
}

var _ rollup.PointSeries = (*rolledSeries)(nil)

// Plan implements rollup.PointSeries.
func (s *rolledSeries) Plan() *rollup.Plan { return s.plan }

func (s *rolledSeries) HasBuckets() bool { return s.built.hasRollups }

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
	cells := s.built.rollupsOf(piece)
	if len(cells) == 0 && s.plan.HasRaw(piece.day) {
		cells = s.built.coarsestOf(piece) // which are only there if they tell all
	}
	if len(cells) == 0 {
		return raw.appendTo(p, piece.after, piece.to)
	}
	rest := piece
	for _, span := range samplesIn(cells, piece) {
		rest.to = span.After
		if err := s.appendCells(p, cells, rest); err != nil {
			return err
		}
		if err := raw.appendTo(p, span.After, span.To); err != nil {
			return err
		}
		rest.after, rest.to = span.To, piece.to
	}
	return s.appendCells(p, cells, rest)
}

// appendCells appends what cells of one resolution tell of a part of a day.
func (s *rolledSeries) appendCells(p *rollup.Points, cells []rollupCell, piece dayPiece) error {
	for _, c := range cells {
		if err := s.appendCell(p, c, piece); err != nil {
			return err
		}
	}
	return nil
}

// appendCell appends what is known of a part of a day from a cell, and from the finer ones of the same row.
func (s *rolledSeries) appendCell(p *rollup.Points, c rollupCell, piece dayPiece) error {
	if !rollup.HasBuckets(c.value) {
		if first, limit := max(piece.after+1, c.base), min(piece.to+1, c.base+series.Period); first < limit {
			p.AppendHole(first, limit)
		}
		return nil
	}
	cells := []rollup.Cell{{Resolution: c.resolution, Value: c.value}}
	for _, r := range slices.Backward(rollup.Downsampled) {
		if r >= c.resolution {
			continue
		}
		for _, finer := range s.built.rollupsOf(dayPiece{day: c.day, resolution: r}) {
			if finer.base == c.base && len(finer.value) > 0 && rollup.HasBuckets(finer.value) {
				cells = append(cells, rollup.Cell{Resolution: r, Value: finer.value})
			}
		}
	}
	return p.AppendCells(c.day, cells, piece.after, piece.to)
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
