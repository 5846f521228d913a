package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/spans"
	"github.com/promtable/promtable/series"
)

const (
	// batchOps and batchBytes are the size at which a batch of mutations is sent.
	// batchCells bounds the cells read for it, so that the read ends in time.
	batchOps   = 50_000
	batchBytes = 4 << 20
	batchCells = 1_000_000
	// jobs.ReadTimeout bounds the read of a batch.
	// maxReads is how often a batch is read again because it was stale.
	maxReads = 5
)

var (
	errSlotEnded = errors.New("the slot ended before all rows were sealed")
	errStale     = errors.New("what was read is too old")
	errFull      = errors.New("batch is full")
	// errRefused marks errors of the store about METRIC.
	errRefused = errors.New("refused by the store")
)

// A batch is the mutations of rows that were read together.
type batch struct {
	muts []bucketstore.Mutation
	// readAt is when the first read began, by our clock.
	readAt int64
	// plans are the plans of the mutations.
	plans []plan
	// rest are the keys of rows that are not sealed, or not completely.
	rest [][]byte

	ops, bytes, cells int
	// maxCells is batchCells, or less in tests.
	maxCells int
	// wide are the keys of rows that must be read from an earlier time, by that. It is nil when they are.
	wide map[int64][][]byte
}

func (b *batch) isFull() bool {
	return b.ops >= batchOps || b.bytes >= batchBytes || b.cells >= b.maxCells
}

// addPlan adds the plan of a row.
func (b *batch) addPlan(key []byte, p plan) {
	if p.more {
		b.rest = append(b.rest, key)
	}
	b.muts, b.plans = append(b.muts, bucketstore.Mutation{Key: key, Ops: p.ops}), append(b.plans, p)
	b.ops += len(p.ops)
	for i := range p.ops {
		b.bytes += len(p.ops[i].Qualifier) + len(p.ops[i].Value)
	}
}

// dropFailed removes rows whose mutations failed, by position, from rest: they would fail
// again.
func (b *batch) dropFailed(failed map[int]error) {
	for n := range failed {
		b.rest = slices.DeleteFunc(b.rest, func(key []byte) bool { return bytes.Equal(key, b.muts[n].Key) })
	}
}

// A worker seals one batch after another.
type worker struct {
	*Sealer
	rows rowSealer
	// refused counts the rows of a part that the store refused. sealed says that it has
	// taken a mutation of others.
	refused int
	sealed  bool
}

// maxRefused is how many rows the store may refuse before it takes one: then the reason is
// not the rows.
const maxRefused = 20

// sealRows seals rows of the bucket at base. keys are ascending. A row that the store
// refuses to read or to write does not keep others from being sealed.
func (s *worker) sealRows(ctx context.Context, t slot, base int64, keys [][]byte) (err error) {
	ctx, span := spans.Start(ctx, "seal")
	span.Count("rows", len(keys))
	defer func() { span.End(err) }()
	s.refused, s.sealed = 0, false
	return s.sealPart(ctx, t, base, keys)
}

// sealPart seals rows. If the store refuses a request, it tries each half of them.
func (s *worker) sealPart(ctx context.Context, t slot, base int64, keys [][]byte) error {
	err := s.sealAll(ctx, t, base, keys)
	if err == nil || !errors.Is(err, errRefused) || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if n := len(keys) / 2; n > 0 {
		if err := s.sealPart(ctx, t, base, keys[:n]); err != nil {
			return err
		}
		return s.sealPart(ctx, t, base, keys[n:])
	}
	if s.refused++; s.refused > maxRefused && !s.sealed {
		return err
	}
	s.failed(1, "row not sealed", err, "row", string(keys[0]))
	return nil
}

// sealAll seals rows, or returns the error of the first request that failed.
func (s *worker) sealAll(ctx context.Context, t slot, base int64, keys [][]byte) error {
	for reads := 0; len(keys) > 0; {
		b, err := s.read(ctx, t, base, keys)
		if err != nil {
			return err
		}
		err = s.apply(ctx, t, b)
		if reads++; errors.Is(err, errStale) && reads < maxReads {
			continue
		}
		if err != nil {
			return err
		}
		reads, keys = 0, b.rest
	}
	return nil
}

// read reads rows until a batch is full.
func (s *worker) read(ctx context.Context, t slot, base int64, keys [][]byte) (*batch, error) {
	ctx, cancel := context.WithTimeout(ctx, jobs.ReadTimeout)
	defer cancel()
	b := &batch{readAt: s.cfg.Now().UnixMilli(), maxCells: s.batchCells, wide: make(map[int64][][]byte)}
	start := t.window
	if base+series.Period <= start {
		start = base + series.Period // not known yet: the windows whose chunks are needed
	}
	keys, err := s.scan(ctx, b, t, extent{base: base, raw: base, chunks: start}, keys)
	if err != nil {
		return nil, err
	}
	wide := b.wide
	b.wide = nil
	for _, start := range slices.Sorted(maps.Keys(wide)) {
		rest := wide[start]
		if !b.isFull() || len(b.muts) == 0 { // at least one row must be sealed
			if rest, err = s.scan(ctx, b, t, extent{base: base, raw: start, chunks: start}, rest); err != nil {
				return nil, err
			}
		}
		b.rest = append(b.rest, rest...)
	}
	b.rest = append(b.rest, keys...)
	slices.SortFunc(b.rest, bytes.Compare)
	return b, nil
}

// An extent says from which time on raw cells and chunks are read, in milliseconds.
type extent struct{ base, raw, chunks int64 }

// families returns what a slot reads, up to its limit.
func (e extent) families(t slot) []bucketstore.FamilyRange {
	end := e.base + series.Period
	limit := qualifier(e.base, min(t.limit(), end))
	var families []bucketstore.FamilyRange
	if e.chunks < end {
		families = append(families, bucketstore.FamilyRange{Family: series.FamilyChunk, Start: qualifier(e.base, e.chunks), Limit: limit})
	}
	for _, family := range series.RawFamilies {
		part := bucketstore.FamilyRange{Family: family, Start: qualifier(e.base, e.raw), Limit: limit}
		if family == t.family() {
			part.Start, part.Limit = nil, nil // to see everything that would be deleted
		}
		families = append(families, part)
	}
	return families
}

// qualifier returns a bound of qualifiers: nil for the start and the end of the bucket.
func qualifier(base, t int64) []byte {
	if t == base || t == base+series.Period {
		return nil
	}
	return series.AppendQualifier(nil, uint32(t-base))
}

// scan plans rows into b until it is full, and returns the remaining keys. Rows that must
// be read from an earlier time go to b.wide. A row that cannot be sealed is logged, counted
// and left unchanged.
func (s *worker) scan(ctx context.Context, b *batch, t slot, e extent, keys [][]byte) (rest [][]byte, err error) {
	readAt := s.cfg.Now().UnixMilli()
	if !isFresh(b.readAt, readAt) {
		return keys, nil // seal the rows read so far
	}
	s.rows.slot = t
	ranges := make([]series.RowRange, len(keys))
	for i, key := range keys {
		ranges[i] = series.SingleRow(key)
	}
	err = s.cfg.Store.Scan(ctx, bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: ranges, Families: e.families(t)}, func(row bucketstore.Row) error {
		p, err := s.rows.plan(e.base, e.chunks, readAt, row.Cells)
		b.cells += len(row.Cells)
		key := bytes.Clone(row.Key)
		switch {
		case err != nil:
			s.failed(1, "row not sealed", err, "row", string(key))
		case p.isWide && b.wide == nil:
			s.failed(1, "row not sealed", errFence, "row", string(key))
		case p.isWide:
			b.wide[p.start] = append(b.wide[p.start], key)
		case len(p.ops) > 0:
			b.addPlan(key, p)
		}
		if b.isFull() {
			n, _ := slices.BinarySearchFunc(keys, key, bytes.Compare)
			rest = keys[n+1:]
			return errFull
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return nil, fmt.Errorf("read rows to seal: %w: %w", errRefused, err)
	}
	return rest, nil
}

// apply sends a batch, unless the fence forbids it, see fence.go.
func (s *worker) apply(ctx context.Context, t slot, b *batch) error {
	if len(b.muts) == 0 {
		return nil
	}
	if err := s.lease.Keep(ctx); err != nil {
		return err
	}
	now := s.cfg.Now()
	if s.cfg.Clock != nil {
		since, err := s.cfg.Clock.relied(now)
		switch {
		case err != nil:
			return err
		case since > b.readAt: // our clock was in doubt meanwhile
			return errStale
		}
	}
	switch ms := now.UnixMilli(); {
	case !t.isOpen(ms):
		return errSlotEnded
	case !isFresh(b.readAt, ms):
		return errStale
	}
	ctx, cancel := s.withDeadline(ctx, now.Add(mutationTime))
	defer cancel()
	err := s.cfg.Store.Apply(ctx, bucketstore.Metric, b.muts)
	var failed map[int]error
	if rows := (*bucketstore.RowsError)(nil); errors.As(err, &rows) {
		failed = rows.Failed
		b.dropFailed(failed)
		s.failed(len(failed), "rows not sealed", err, "rows", len(failed))
	} else if err != nil {
		return fmt.Errorf("write sealed rows: %w: %w", errRefused, err)
	}
	for i := range b.plans {
		if failed[i] == nil {
			s.sealed = true
			s.metrics.addRow(&b.plans[i])
		}
	}
	return nil
}

// maxLogged is how many failures are logged in a slot. All are counted.
const maxLogged = 20

// failed counts n rows that are not sealed, and logs the error. The sealer continues. It may
// be called concurrently.
func (s *Sealer) failed(n int, msg string, err error, pairs ...any) {
	s.metrics.failures.Add(float64(n))
	switch logged := s.failures.Add(1); {
	case logged <= maxLogged:
		level.Warn(s.cfg.Logger).Log(append([]any{"msg", msg, "err", err}, pairs...)...)
	case logged == maxLogged+1:
		level.Warn(s.cfg.Logger).Log("msg", "more rows are not sealed, see adapter_seal_failures_total")
	}
}

// wallDeadline ends ctx at t by the wall clock, even if the machine was suspended, when the
// monotonic clock of contexts stands still. gRPC reads the deadline before each attempt,
// and it has passed then. It also ends ctx by the monotonic clock, in case the wall clock
// was set back.
func wallDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithDeadline(ctx, t)
	wall, cancelWall := context.WithDeadline(ctx, t.Round(0))
	return wall, func() {
		cancelWall()
		cancel()
	}
}
