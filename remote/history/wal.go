package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// A headCount is what the write-ahead log of a TSDB has of a selection from a time on. It holds a series reference in memory for each
// series that is selected, if not all are.
type headCount struct {
	sel     Selection
	from    int64
	decoder record.Decoder
	// refs are the series that are selected, or nil if all are.
	refs map[chunks.HeadSeriesRef]bool
	// samples is how many there are, first and last their times, in milliseconds.
	samples     int64
	first, last int64
}

// checkHead returns an error, a sentence, if the write-ahead log in a data directory has samples of a selection from a time on, that of the
// end of the last block: they are in no block yet. A log that breaks off is read up to there, as its Prometheus may be writing it.
func checkHead(ctx context.Context, dir string, from int64, sel Selection) error {
	wal := filepath.Join(dir, "wal")
	if _, err := os.Stat(wal); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	h := &headCount{sel: sel, from: max(from, sel.Mint), decoder: record.NewDecoder(labels.NewSymbolTable(), slog.New(slog.DiscardHandler)), first: math.MaxInt64, last: math.MinInt64}
	if len(sel.Matchers) > 0 {
		h.refs = make(map[chunks.HeadSeriesRef]bool)
	}
	ranges := []wlog.SegmentRange{{Dir: wal, First: -1, Last: -1}}
	if checkpoint, n, err := wlog.LastCheckpoint(wal); err == nil {
		ranges = []wlog.SegmentRange{{Dir: checkpoint, First: -1, Last: -1}, {Dir: wal, First: n + 1, Last: -1}}
	}
	segments, err := wlog.NewSegmentsRangeReader(ranges...)
	if err == nil {
		err = errors.Join(h.read(ctx, segments), segments.Close())
	}
	if err != nil {
		return fmt.Errorf("%s, which may have newer samples than the blocks beside it, cannot be read: %w", wal, err)
	}
	if h.samples == 0 {
		return nil
	}
	text := func(t int64) string { return time.UnixMilli(t).UTC().Format(time.RFC3339) }
	return fmt.Errorf("%s has %d samples, from %s to %s, that are in no block yet: import a snapshot, which Prometheus makes by POST /api/v1/admin/tsdb/snapshot, or this time by remote-read; with --end before it they are left out",
		wal, h.samples, text(h.first), text(h.last))
}

// read counts the samples of segments up to where they break off.
func (h *headCount) read(ctx context.Context, segments io.Reader) error {
	r := wlog.NewReader(segments)
	for r.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if h.add(r.Record()) != nil {
			break
		}
	}
	return nil
}

// add counts the samples of a record.
func (h *headCount) add(rec []byte) error {
	switch h.decoder.Type(rec) {
	case record.Series:
		if h.refs == nil {
			return nil
		}
		series, err := h.decoder.Series(rec, nil)
		for _, s := range series {
			if h.sel.matches(s.Labels) {
				h.refs[s.Ref] = true
			}
		}
		return err
	case record.Samples, record.SamplesV2:
		samples, err := h.decoder.Samples(rec, nil)
		for _, s := range samples {
			h.count(s.Ref, s.T)
		}
		return err
	case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
		samples, err := h.decoder.HistogramSamples(rec, nil)
		for _, s := range samples {
			h.count(s.Ref, s.T)
		}
		return err
	case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
		samples, err := h.decoder.FloatHistogramSamples(rec, nil)
		for _, s := range samples {
			h.count(s.Ref, s.T)
		}
		return err
	}
	return nil
}

func (h *headCount) count(ref chunks.HeadSeriesRef, t int64) {
	if t < h.from || t > h.sel.Maxt || h.refs != nil && !h.refs[ref] {
		return
	}
	h.samples++
	h.first, h.last = min(h.first, t), max(h.last, t)
}
