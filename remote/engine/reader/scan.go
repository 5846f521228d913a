package reader

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/remote/spans"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// minScanSeries is how many series a scan reads at least, if several scans read a
// batch at the same time: for fewer, another request costs more than it saves.
const minScanSeries = 128

// A batchScan is one reading of a batch.
type batchScan struct {
	r *batchReader
	// of are the series.
	of []index.Series
	batch
	// sections are read at the same time.
	sections []section
	// samples and bytes are those of all sections.
	samples, bytes atomic.Int64
}

// A section is some series of a batch, one next to the other.
type section struct {
	s *batchScan
	// first is the position of the first of them.
	first    int
	batch    []index.Series
	builders []chunkBuilder
	// slots maps series keys to builders.
	slots  map[string]int
	key    []byte
	reader rowReader
	// gathered, unless nil, are rows that are merged later.
	gathered *gathered
	// widest is how many cells the widest row of the last part had.
	widest int
	// met has the ranges of the last part, if onRange is set.
	met []rangeMet
}

// rangeMet is what was read of a range.
type rangeMet struct {
	r series.RowRange
	rowCounts
}

func (r *batchReader) newBatchScan(series []index.Series) *batchScan {
	s := &batchScan{r: r, of: series, batch: newBatch(len(series))}
	count := max(1, min(r.scans, len(series)/r.least))
	for n := range count {
		first, limit := n*len(series)/count, (n+1)*len(series)/count
		sec := section{s: s, first: first, batch: series[first:limit], builders: s.builders[first:limit], slots: make(map[string]int, limit-first)}
		var space *chunk.Space
		if r.query.Decoded {
			space = s.addSpace()
		}
		for i := range sec.batch {
			sec.slots[sec.batch[i].Key] = i
			sec.builders[i].Decoded = space
		}
		s.sections = append(s.sections, sec)
	}
	return s
}

// run reads one part and returns how many cells the widest row of it had.
func (s *batchScan) run(ctx context.Context, p part) (widest int, err error) {
	if len(s.sections) == 1 {
		err = s.sections[0].run(ctx, p)
	} else {
		group, ctx := errgroup.WithContext(ctx)
		for i := range s.sections {
			group.Go(func() error { return repanic.Catch(func() error { return s.sections[i].run(ctx, p) }) })
		}
		err = repanic.Rethrow(group.Wait())
	}
	for i := range s.sections {
		widest = max(widest, s.sections[i].widest)
		for _, met := range s.sections[i].met {
			s.r.onRange(p, met.r, met.rowCounts)
		}
	}
	return widest, err
}

// run reads one part.
func (sec *section) run(ctx context.Context, p part) (err error) {
	ctx, span := spans.Start(ctx, "scan")
	span.Count("series", len(sec.batch))
	defer func() { span.End(err) }()
	sec.widest, sec.met = 0, nil
	if p.wanted != nil {
		p.wanted = p.wanted[sec.first : sec.first+len(sec.batch)]
	}
	rows := sec.s.r.ranges(sec.batch, p)
	if len(rows) == 0 {
		return nil
	}
	counts := rangeCounts{usage: UsageOf(ctx), ranges: rows, report: sec.report()}
	if sec.s.r.query.Compute != nil {
		sec.gathered = gatherings.Get().(*gathered)
		defer func() {
			sec.gathered.clear()
			gatherings.Put(sec.gathered)
		}()
	}
	err = sec.s.r.store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Metric,
		Rows:     rows,
		Families: p.families(),
	}, func(row bucketstore.Row) error {
		counts.addRow(row)
		sec.widest = max(sec.widest, len(row.Cells))
		return sec.takeRow(ctx, p, row)
	})
	if err == nil {
		err = sec.flush(ctx, p)
	}
	counts.usage.addRaw(counts.total)
	counts.endScan()
	if err != nil && !errors.Is(err, errSplit) && !errors.Is(err, ErrLimit) {
		err = fmt.Errorf("read samples: %w", err)
	}
	return err
}

// report returns what takes note of ranges, or nil if onRange is not set.
func (sec *section) report() func(series.RowRange, rowCounts) {
	if sec.s.r.onRange == nil {
		return nil
	}
	return func(r series.RowRange, counts rowCounts) { sec.met = append(sec.met, rangeMet{r, counts}) }
}

// slotOf returns of which builder and base the row of a key is, if it is one of p. A range may hold rows that were not asked for, and
// those of other sections: these are passed over.
func (sec *section) slotOf(p part, key []byte) (slot int, base int64, ok bool, err error) {
	if sec.key, base, err = sec.s.r.schema.ParseRowKey(sec.key[:0], key); err != nil {
		return 0, 0, false, err
	}
	slot, ok = sec.slots[string(sec.key)]
	return slot, base, ok && p.has(base) && (p.wanted == nil || p.wanted[slot]), nil
}

// addRow merges one row of p into the builder of its slot.
func (sec *section) addRow(p part, slot int, base int64, row bucketstore.Row) error {
	b := &sec.builders[slot]
	samples, size := b.samples, b.bytes
	if err := sec.reader.appendTo(b, base, p.start, p.limit, row.Cells); err != nil {
		return fmt.Errorf("row %q: %w", row.Key, err)
	}
	return sec.s.checkLimits(sec.first+slot, b.samples-samples, b.bytes-size)
}

func (r *batchReader) tooManySamples() error {
	return limitError("selector %s reads more than %d samples: see --read.max-samples", SelectorName(r.query.Matchers), r.limits.MaxSamples)
}

// checkLimits is called after each row: it was one of the series in slot, and had so
// many samples and bytes.
func (s *batchScan) checkLimits(slot, samples, bytes int) error {
	r, limits := s.r, s.r.limits
	all, size := s.samples.Add(int64(samples)), s.bytes.Add(int64(bytes))
	switch {
	case !r.query.Passing && r.samples.Load()+all > int64(limits.MaxSamples):
		return r.tooManySamples()
	case s.builders[slot].bytes > limits.MaxSeriesBytes:
		return limitError("series %s takes more than %d bytes", series.Abbreviate(s.of[slot].Labels), limits.MaxSeriesBytes)
	case int(size) > splitFactor*r.target && len(s.builders) > 1:
		return errSplit
	}
	return nil
}
