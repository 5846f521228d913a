// Package history imports samples of other systems: it reads them from a Source, in units of time that are done one after the other, and
// writes them to a Target.
//
//	Import        units, workers, what is done already      history.go
//	Blocks        blocks of a TSDB in a directory           blocks.go
//	checkHead     what their write-ahead log has more   wal.go
//	salvage       what a damaged index still has       salvage.go
//	Text          lines with timestamps                     text.go
//	              of OpenMetrics                            openmetrics.go
//	              of InfluxDB                               influx.go
//	RemoteRead    a server with remote read                 remoteread.go
//	Joined        whole series of remote read               joined.go
//	VictoriaMetrics  its export of JSON lines               victoria.go
//	Copy          what a target lacks of a source           copy.go
//	Rows          an adapter as the source of a copy        rowsource.go
//	storedChunk   cells of such rows, compared              rows.go
//	NewRowsHandler  what an adapter answers there           rowhandler.go
//	Healer        what a sender has not sent                healer.go
//	Exemplars     which the others leave out                exemplars.go
//	Transfers     how far they are, of all processes        transfers.go
//	Server        how a server is asked                     server.go
//	Store         the target in this process                store.go
//	Client        a running adapter as a target             client.go
//	Handler       what it answers there                     handler.go
//
// A unit is done when all its samples are durable. Then the target notes its ID, so that the next import of the same source does not read
// it again. To write a unit twice changes nothing: units end where windows end, so the same samples make the same chunks, whatever blocks
// or answers they come from.
package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/storage"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// UnitSpan is how long a unit of blocks is, in milliseconds, aligned: 16 windows, 37 hours. So a row is written once for each 37 hours, and
// what an interrupted import reads again is bounded.
const UnitSpan = 16 * series.Window

// A Unit is a part of a source: the samples in [Start, Limit), in milliseconds.
type Unit struct {
	// Rolled says that only rollups are taken of it.
	Rolled bool
	// ID changes if the unit has other samples.
	ID           string
	Start, Limit int64
	// Samples is about how many there are, or 0 if that is not known.
	Samples int64
}

// A grid says where units begin and end.
type grid struct {
	// rolled is up to which time, inclusive, only rollups are taken, by whole days. 0 is none.
	rolled int64
	// span is how long later units are, which end where windows end.
	span int64
}

// at returns the start and the limit of the unit that has t.
func (g grid) at(t int64) (start, limit int64) {
	if t <= g.rolled && t > 0 {
		day := rollup.DayOf(t)
		return day + 1, day + rollup.Day + 1
	}
	start = t &^ (g.span - 1)
	limit = start + g.span
	switch {
	case g.rolled > 0 && t > g.rolled:
		start = max(start, g.rolled+1)
	case g.rolled > 0: // the time 0 is in no day
		limit = min(limit, 1)
	}
	return start, limit
}

// unit returns the unit that begins at a start, as far as it is selected, with an ID of its times and of these texts. It is not ok if
// nothing of it is.
func (g grid) unit(start, samples int64, sel Selection, texts ...string) (u Unit, ok bool) {
	_, limit := g.at(start)
	u = Unit{Rolled: start > 0 && limit <= g.rolled+1, Start: max(start, sel.Mint), Limit: min(limit-1, sel.Maxt) + 1, Samples: samples}
	u.ID = Digest(append([]string{fmt.Sprint(u.Start, u.Limit, u.Rolled)}, texts...)...)
	return u, u.Start < u.Limit
}

// Digest returns a short name of texts.
func Digest(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d %s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// A Source has samples.
type Source interface {
	// Units returns its parts, in order of time. What cannot be read is in damaged, each error a sentence for operators.
	// Of samples up to rolled, inclusive, only rollups are taken.
	Units(ctx context.Context, rolled int64) (units []Unit, damaged []error, err error)
	// Open opens a unit, which the caller closes. Its series may have samples outside of the unit. After a Temporary error, also one of the
	// set or its series, the unit may be opened again.
	Open(ctx context.Context, u Unit) (*Reading, error)
	// Parallel says that several units are to be read at once, each by one worker: the source is slow to answer.
	Parallel() bool
	// Close releases what the source holds.
	Close() error
}

// A Reading is an open unit.
type Reading struct {
	storage.ChunkSeriesSet
	// Damaged are errors about parts of the unit that are left out.
	Damaged []error
	Close   func() error
}

// ReadingOf returns a reading of a set that holds nothing.
func ReadingOf(set storage.ChunkSeriesSet) *Reading {
	return &Reading{ChunkSeriesSet: set, Close: func() error { return nil }}
}

// A Target stores samples. It is safe for concurrent use.
type Target interface {
	// Done returns the IDs of the units of an import that are stored.
	Done(ctx context.Context, id string) ([]string, error)
	// SetDone notes units that are stored, beside those that are noted. Without units it forgets all.
	SetDone(ctx context.Context, id string, units ...meta.Part) error
	// Rolled returns up to which time, inclusive, only rollups are taken, in milliseconds. 0 is none.
	Rolled(ctx context.Context) (int64, error)
	// NewWriter returns a writer for a unit.
	NewWriter(ctx context.Context, u Unit) (Writer, error)
}

// A Writer stores the samples of a unit. It is not safe for concurrent use.
type Writer interface {
	// Write takes a series, and leaves out its samples that are not of the unit. A RefusedError and a DamageError are about this series,
	// others end the writer.
	Write(ctx context.Context, s storage.ChunkSeries) error
	// Flush returns when all is durable.
	Flush(ctx context.Context) error
	// Counts returns what became of all samples so far.
	Counts() backfill.Counts
}

// A DamageError is about samples that cannot be read. The others of the series are stored, unless only rollups are and the series has no end.
type DamageError struct{ error }

// Unwrap returns what is wrong.
func (e *DamageError) Unwrap() error { return e.error }

// A RefusedError is about series that can never be stored. All others are.
type RefusedError struct{ Series []Refusal }

// A Refusal is a series that can never be stored.
type Refusal struct {
	// Hash is that of its labels, Reason a sentence that names them.
	Hash   uint64 `json:"hash"`
	Reason string `json:"reason"`
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Series[0].Reason }

// A LeftOut error says why a part of a source is not imported, though nothing is wrong with it.
type LeftOut struct{ error }

// A Temporary error may be gone at the next attempt.
type Temporary struct{ error }

// Unwrap returns what failed.
func (e *Temporary) Unwrap() error { return e.error }

const (
	// attempts is how often a unit is begun if its source fails, with pauses that double.
	attempts   = 5
	firstPause = time.Second
	// stallAfter is how long a source may be silent until that is logged, and then again and again.
	stallAfter = 20 * time.Second
	// maxAhead is how far after now a time may be that is taken for one in another unit.
	maxAhead = 24 * time.Hour
	// maxSentences is how many sentences about damage are logged.
	maxSentences = 20
	// maxRefused is how many refused series are known, in 8 bytes each. Later ones are counted and named in each unit.
	maxRefused = 1 << 20
)

// Config says what an Import does. Source and Target are required.
type Config struct {
	Source Source
	Target Target
	// ID names what is imported: source and options. What an earlier import of the same ID has done is left out.
	ID string
	// Again says that what earlier imports have done is read and written again.
	Again bool
	// Workers is how many series are written at once. 0 is 1.
	Workers int
	// SamplesPerSecond bounds the rate. 0 is no limit.
	SamplesPerSecond float64
	// Logger may be nil.
	Logger log.Logger
	// Name names the source in log lines. It may be empty.
	Name string
	// stall replaces stallAfter in tests.
	stall time.Duration
	// pause replaces the pause between two attempts in tests.
	pause func(ctx context.Context, d time.Duration) error
}

// An Import copies a source to a target.
type Import struct {
	cfg   Config
	began time.Time

	// mu guards what follows.
	mu       sync.Mutex
	progress Progress
	refused  map[uint64]bool
	paced    atomic.Int64
}

// Progress says how far an import is.
type Progress struct {
	// Counts are those of all units, but Series is the most that a unit has.
	backfill.Counts
	// Units is how many there are to do, Finished how many are done, Skipped how many were done before.
	Units, Finished, Skipped int
	// Expected is about how many samples the units to do have. 0 is not known.
	Expected int64
	// Read is how many of their samples, taken or not, were read.
	Read int64
	// Refused is how many series can never be stored.
	Refused int
	// Empty is how many units had no sample though they were read. A source that can be asked again is, by the next import.
	Empty int
	// TooLarge is a time after series.MaxTime that would be one of today if it were divided by 1000, in milliseconds, or 0.
	TooLarge int64
	// Damaged is how many parts of the source could not be read. They are tried again by the next import.
	Damaged int
}

// Show sets how far a transfer is.
func (p Progress) Show(t *Transfer) {
	t.Parts, t.Done, t.Samples, t.Expected, t.Problems = p.Units, p.Finished, p.Read, p.Expected, p.Damaged+p.Refused
}

// New returns an import, which does nothing before Run.
func New(cfg Config) *Import {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.pause == nil {
		cfg.pause = bucketstore.Sleep
	}
	if cfg.stall == 0 {
		cfg.stall = stallAfter
	}
	cfg.Workers = max(cfg.Workers, 1)
	return &Import{cfg: cfg, refused: make(map[uint64]bool)}
}

// Progress returns how far the import is. It may be called while Run runs.
func (i *Import) Progress() Progress {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.progress
}

// Run imports all units that are not done, oldest first, until ctx ends.
func (i *Import) Run(ctx context.Context) error {
	rolled, err := i.cfg.Target.Rolled(ctx)
	if err != nil {
		return fmt.Errorf("read which samples are kept: %w", err)
	}
	units, damaged, err := i.cfg.Source.Units(ctx, rolled)
	for _, err := range damaged {
		i.addDamage(err)
	}
	if err != nil {
		return err
	}
	var done []string
	if i.cfg.Again {
		err = i.cfg.Target.SetDone(ctx, i.cfg.ID)
	} else {
		done, err = i.cfg.Target.Done(ctx, i.cfg.ID)
	}
	if err != nil {
		return fmt.Errorf("read what is imported already: %w", err)
	}
	todo := slices.DeleteFunc(slices.Clone(units), func(u Unit) bool { return slices.Contains(done, u.ID) })
	i.mu.Lock()
	i.progress.Units, i.progress.Skipped = len(todo), len(units)-len(todo)
	for _, u := range todo {
		i.progress.Expected += u.Samples
		if scaled := u.Start / 1000; i.progress.TooLarge == 0 && u.Start > series.MaxTime && scaled > 0 && scaled <= time.Now().Add(maxAhead).UnixMilli() {
			i.progress.TooLarge = u.Start
		}
	}
	i.mu.Unlock()
	i.began = time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(1)
	workers := i.cfg.Workers
	if i.cfg.Source.Parallel() {
		group.SetLimit(workers)
		workers = 1
	}
	for _, u := range todo {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error { return i.runUnit(groupCtx, u, workers) })
	}
	return errors.Join(group.Wait(), ctx.Err())
}

// runUnit imports a unit, and begins it again while the source fails for a time.
func (i *Import) runUnit(ctx context.Context, u Unit, workers int) error {
	wait := firstPause
	for n := 1; ; n++ {
		var counted attempt
		isWhole, err := i.tryUnit(ctx, u, workers, &counted)
		if temporaryOf(err) != nil && n < attempts && ctx.Err() == nil {
			i.forget(&counted)
			level.Warn(i.cfg.Logger).Log("msg", "a part of the import failed, trying again", "part", u, "pause", wait, "err", err)
			if err := i.cfg.pause(ctx, wait); err != nil {
				return err
			}
			wait *= 2
			continue
		}
		if err != nil {
			return fmt.Errorf("import %s: %w", u, err)
		}
		return i.finish(ctx, u, isWhole)
	}
}

// An attempt is what was counted of a unit so far.
type attempt struct {
	mu     sync.Mutex
	counts backfill.Counts
}

// forget takes what an attempt has counted out of the progress: the next one counts it again.
func (i *Import) forget(a *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.Negate()
	i.count(backfill.Counts{}, a.counts)
}

// finish notes a unit, if all of it is stored.
func (i *Import) finish(ctx context.Context, u Unit, isWhole bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if isWhole {
		if err := i.cfg.Target.SetDone(ctx, i.cfg.ID, meta.Part{ID: u.ID, Start: u.Start, Limit: u.Limit}); err != nil {
			return fmt.Errorf("note that %s is imported: %w", u, err)
		}
	}
	i.progress.Finished++
	level.Debug(i.cfg.Logger).Log("msg", "imported a part", "part", u, "finished", i.progress.Finished, "of", i.progress.Units)
	return nil
}

// tryUnit imports a unit. It returns false if something of it could not be read, was left out or refused, or if a source that may answer
// otherwise the next time had nothing.
func (i *Import) tryUnit(ctx context.Context, u Unit, workers int, counted *attempt) (isWhole bool, err error) {
	silence := i.watch(u)
	defer silence.end()
	r, err := i.cfg.Source.Open(ctx, u)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for _, err := range r.Damaged {
		i.addDamage(err)
	}
	var damaged atomic.Bool
	damaged.Store(len(r.Damaged) > 0)
	group, workCtx := errgroup.WithContext(ctx)
	todo := make(chan storage.ChunkSeries, workers)
	for range workers {
		group.Go(func() error {
			isWhole, err := i.work(workCtx, u, todo, counted)
			if !isWhole {
				damaged.Store(true)
			}
			return err
		})
	}
	func() {
		defer close(todo)
		for r.Next() {
			silence.end()
			select {
			case todo <- r.At():
			case <-workCtx.Done():
				return
			}
			silence.begin()
		}
		silence.end()
	}()
	if err := group.Wait(); err != nil {
		return false, err
	}
	if err := errors.Join(ctx.Err(), temporaryOf(r.Err())); err != nil {
		return false, err
	}
	if err := r.Err(); err != nil {
		i.addDamage(err)
		damaged.Store(true)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.progress.Series = max(i.progress.Series, counted.counts.Series)
	c := counted.counts
	isEmpty := readOf(c) == 0
	if isEmpty {
		i.progress.Empty++
	}
	isAll := c.Old+c.Future+c.Invalid == 0 && !(isEmpty && i.cfg.Source.Parallel())
	return isAll && !damaged.Load(), nil
}

// A silence is a time in which the source of an import is asked and gives nothing. It logs itself.
type silence struct {
	mu    sync.Mutex
	timer *time.Timer
	every time.Duration
	// asked says that the source is asked.
	asked bool
}

// watch begins a silence about a unit, which the caller ends.
func (i *Import) watch(u Unit) *silence {
	s := &silence{every: i.cfg.stall, asked: true}
	began := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(s.every, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.asked {
			return
		}
		level.Warn(i.cfg.Logger).Log("msg", "the source is silent, waiting for it", "source", i.cfg.Name, "part", u, "silent", s.every, "asked", time.Since(began).Round(time.Second))
		s.timer.Reset(s.every)
	})
	return s
}

func (s *silence) begin() { s.set(true) }

func (s *silence) end() { s.set(false) }

func (s *silence) set(asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked = asked; asked {
		s.timer.Reset(s.every)
	} else {
		s.timer.Stop()
	}
}

// temporaryOf returns err if it is a Temporary.
func temporaryOf(err error) error {
	if errors.As(err, new(*Temporary)) {
		return err
	}
	return nil
}

// work writes series until there are no more, and flushes. It adds what became of them to all, and returns false if
// some samples could not be read or stored.
func (i *Import) work(ctx context.Context, u Unit, todo <-chan storage.ChunkSeries, all *attempt) (isWhole bool, err error) {
	w, err := i.cfg.Target.NewWriter(ctx, u)
	if err != nil {
		return false, err
	}
	isWhole = true
	var counted backfill.Counts
	count := func() (read int64) { read, counted = i.count(counted, w.Counts()); return read }
	defer func() {
		count()
		all.mu.Lock()
		defer all.mu.Unlock()
		all.counts.Add(counted)
	}()
	for s := range todo {
		err := w.Write(ctx, s)
		isRefused, isDamaged := i.addRefused(err), errors.As(err, new(*DamageError))
		if err != nil && !isRefused && !isDamaged {
			return false, err
		}
		isWhole = isWhole && err == nil
		if isDamaged {
			i.addDamage(err)
		}
		if err := i.pace(ctx, count()); err != nil {
			return false, err
		}
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	err = w.Flush(ctx)
	if err != nil && !i.addRefused(err) {
		return false, err
	}
	return isWhole && err == nil, i.pace(ctx, count()) // a Client counts what it has sent
}

// count adds what was counted since before to the progress, and returns how many samples that were, and now.
func (i *Import) count(before, now backfill.Counts) (read int64, counted backfill.Counts) {
	diff := before
	diff.Negate()
	diff.Add(now)
	read = readOf(diff)
	i.mu.Lock()
	defer i.mu.Unlock()
	diff.Series = 0
	i.progress.Counts.Add(diff)
	i.progress.Read += read
	return read, now
}

// readOf returns how many samples were counted.
func readOf(c backfill.Counts) int64 { return c.Samples + c.Old + c.Future + c.Invalid }

// pace waits until n more samples may have been read.
func (i *Import) pace(ctx context.Context, n int64) error {
	if i.cfg.SamplesPerSecond <= 0 {
		return nil
	}
	due := time.Duration(float64(i.paced.Add(n)) / i.cfg.SamplesPerSecond * float64(time.Second))
	return i.cfg.pause(ctx, due-time.Since(i.began))
}

// addDamage counts a part of the source that cannot be read, and logs it.
func (i *Import) addDamage(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if errors.As(err, new(*LeftOut)) {
		level.Info(i.cfg.Logger).Log("msg", "a part of the source is left out", "reason", err)
		return
	}
	if i.progress.Damaged++; i.progress.Damaged <= maxSentences {
		level.Warn(i.cfg.Logger).Log("msg", "a part of the source cannot be read, and is left out", "err", err)
	}
}

// addRefused counts and names series that can never be stored, each once. It returns false if err is about something else.
func (i *Import) addRefused(err error) bool {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range refused.Series {
		if i.refused[s.Hash] {
			continue
		}
		if len(i.refused) < maxRefused {
			i.refused[s.Hash] = true
		}
		i.progress.Refused++
		level.Warn(i.cfg.Logger).Log("msg", "a series can never be stored, and is left out", "err", s.Reason)
	}
	return true
}

// String names the times of a unit.
func (u Unit) String() string {
	text := func(t int64) string { return time.UnixMilli(t).UTC().Format(time.RFC3339) }
	return text(u.Start) + " to " + text(u.Limit)
}
