package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series/rollup"
)

// CopyConfig says what a Copy does. All but RolledBefore, Same, Workers, SamplesPerSecond and Logger is required.
type CopyConfig struct {
	// Source is read where both differ.
	Source Source
	// Selection bounds what is copied.
	Selection Selection
	// RolledBefore is the time before which the source has only rollups, in milliseconds. These are compared, too, and the target must take no samples of such days. 0 is
	// none.
	RolledBefore int64
	Target       Target
	// ID names source and selection, see Config.
	ID string
	// Same compares source and target in the times of a unit. If it is nil they are the same where the target lacks nothing.
	Same func(ctx context.Context, u Unit) (bool, error)
	// Read returns the series of the target in a unit, sorted by labels, which the caller closes. Lacking returns what is to be sent of one of the source: what the target lacks,
	// or nil if that is nothing. The target's is nil if it has no such series.
	Read    func(ctx context.Context, u Unit) (*Reading, error)
	Lacking func(target, source storage.ChunkSeries, u Unit) (storage.ChunkSeries, error)
	// Workers is how many units are compared at once. 0 is 1.
	Workers int
	// SamplesPerSecond bounds the rate at which each of them writes. 0 is no limit.
	SamplesPerSecond float64
	Logger           log.Logger
}

// Copied says what a Copy has done.
type Copied struct {
	// Units is how many there are to compare, Same how many were the same before, Written in how many samples were written, and Different how many differ after that:
	// their targets have samples that the source has not, or do not take all.
	Units, Same, Written, Different int
	// Samples is how many were written.
	Samples int64
}

// Copy brings the samples of a source to a target: it compares both, unit by unit, writes what differs, and compares again. So it
// goes on where it was, whatever interrupts it, and what senders write to both meanwhile is not in its way. Of days of which only the target
// has rollups alone there is nothing to compare: they are imported once.
func Copy(ctx context.Context, cfg CopyConfig, report func(Copied)) (Copied, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	rolled, err := cfg.Target.Rolled(ctx)
	if err != nil {
		return Copied{}, fmt.Errorf("read which samples the target keeps: %w", err)
	}
	sel := cfg.Selection
	units, err := cfg.rollupUnits(rolled)
	if err != nil {
		return Copied{}, err
	}
	if n := len(units); n > 0 {
		sel.Mint = rollup.DayOf(units[n-1].Start) + rollup.Day + 1
	}
	all, err := cfg.copyRolled(ctx, sel, rolled)
	if err != nil {
		return all, err
	}
	sel.Mint = max(sel.Mint, rolled+1)
	newer, _, err := unitsOf(sel, grid{span: UnitSpan})
	if err != nil {
		return all, err
	}
	units = append(units, newer...)
	var mu sync.Mutex
	all.Units += len(units)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(cfg.Workers, 1))
	for _, u := range units {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error {
			one, err := cfg.copyUnit(groupCtx, u)
			mu.Lock()
			defer mu.Unlock()
			all.Same += one.Same
			all.Written += one.Written
			all.Different += one.Different
			all.Samples += one.Samples
			report(all)
			return err
		})
	}
	return all, errors.Join(group.Wait(), ctx.Err())
}

// rollupUnits returns the days of which the source has only rollups.
func (cfg *CopyConfig) rollupUnits(rolled int64) (units []Unit, err error) {
	sel := cfg.Selection
	sel.Maxt = min(sel.Maxt, cfg.RolledBefore-1)
	if sel.Mint > sel.Maxt {
		return nil, nil
	}
	units, _, err = unitsOf(sel, grid{rolled, UnitSpan})
	for _, u := range units {
		if !u.Rolled {
			return nil, fmt.Errorf("before %s the source has only rollups, and of %s the target still takes samples: give it the --retention.resolution-raw of the source, and samples for some minutes, after which it takes rollups; or give a later --start",
				time.UnixMilli(cfg.RolledBefore).UTC().Format(time.RFC3339), u)
		}
	}
	return units, err
}

// A selectedSource is a source in some times.
type selectedSource struct {
	Source
	sel Selection
}

// Units implements Source.
func (s selectedSource) Units(_ context.Context, rolled int64) ([]Unit, []error, error) {
	return unitsOf(s.sel, grid{rolled, UnitSpan})
}

// copyRolled imports the days of which only the target takes rollups alone. If some of their series cannot
// be read or stored, these days count as one unit that differs.
func (cfg *CopyConfig) copyRolled(ctx context.Context, sel Selection, rolled int64) (c Copied, err error) {
	if sel.Maxt = min(sel.Maxt, rolled); rolled == 0 || sel.Mint > sel.Maxt {
		return c, nil
	}
	until := time.UnixMilli(rolled).UTC().Format(time.RFC3339)
	level.Info(cfg.Logger).Log("msg", "the target keeps only rollups up to a time: these are made of the samples", "until", until)
	i := New(Config{Source: selectedSource{cfg.Source, sel}, Target: cfg.Target, ID: cfg.ID, Workers: cfg.Workers, SamplesPerSecond: cfg.SamplesPerSecond, Logger: cfg.Logger})
	if err := i.Run(ctx); err != nil {
		return c, err
	}
	if p := i.Progress(); p.Damaged > 0 || p.Refused > 0 {
		c.Units, c.Different = 1, 1
		level.Warn(cfg.Logger).Log("msg", "some rollups are not copied of the time of which the target keeps nothing else", "until", until, "damaged", p.Damaged, "refused", p.Refused)
	}
	return c, nil
}

// copyUnit makes a unit of the target that of the source.
func (cfg *CopyConfig) copyUnit(ctx context.Context, u Unit) (c Copied, err error) {
	isSame, err := cfg.same(ctx, u)
	if err != nil {
		return c, err
	}
	if isSame {
		return Copied{Same: 1}, nil
	}
	i := New(Config{Source: lackingSource{cfg.Source, u, cfg}, Target: notNoted{cfg.Target}, SamplesPerSecond: cfg.SamplesPerSecond, Logger: cfg.Logger})
	if err := i.Run(ctx); err != nil {
		return c, err
	}
	p := i.Progress()
	c.Written, c.Samples = 1, p.Read // without those of series of which the target lacks none
	if isSame, err = cfg.same(ctx, u); err == nil && !isSame {
		c.Different = 1
		level.Warn(cfg.Logger).Log("msg", "source and target differ after the copy: the target has other samples, too, or does not take all", "part", u, "refused", p.Refused)
	}
	return c, err
}

// same compares, and tries again for a while: either side may be started anew.
func (cfg *CopyConfig) same(ctx context.Context, u Unit) (isSame bool, err error) {
	wait := firstPause
	compare := cfg.Same
	if compare == nil {
		compare = cfg.lacksNothing
	}
	for n := 1; ; n++ {
		if isSame, err = compare(ctx, u); err == nil || n == attempts || ctx.Err() != nil || errors.As(err, new(*finalError)) {
			break
		}
		level.Warn(cfg.Logger).Log("msg", "source and target could not be compared, trying again", "part", u, "pause", wait, "err", err)
		if err := bucketstore.Sleep(ctx, wait); err != nil {
			return false, err
		}
		wait *= 2
	}
	if err != nil {
		err = fmt.Errorf("compare %s: %w", u, err)
	}
	return isSame, err
}

// lacksNothing says whether the target lacks nothing in a unit.
func (cfg *CopyConfig) lacksNothing(ctx context.Context, u Unit) (bool, error) {
	r, err := lackingSource{cfg.Source, u, cfg}.Open(ctx, u)
	if err != nil {
		return false, err
	}
	isLacking := r.Next()
	return !isLacking, errors.Join(r.Err(), r.Close())
}

// CountLacking returns of how many series the target lacks samples, each counted in each unit, and how many samples.
func CountLacking(ctx context.Context, cfg CopyConfig) (series, samples int64, err error) {
	units, _, err := unitsOf(cfg.Selection, grid{span: UnitSpan})
	if err != nil {
		return 0, 0, err
	}
	for _, u := range units {
		r, err := lackingSource{cfg.Source, u, &cfg}.Open(ctx, u)
		if err != nil {
			return 0, 0, err
		}
		var it chunks.Iterator
		for r.Next() {
			series++
			it = r.At().Iterator(it)
			for it.Next() {
				samples += int64(it.At().Chunk.NumSamples())
			}
			err = errors.Join(err, it.Err())
		}
		if err := errors.Join(err, r.Err(), r.Close()); err != nil {
			return 0, 0, err
		}
	}
	return series, samples, nil
}

// lackingSource is a unit of the source of a copy, with what the target lacks.
type lackingSource struct {
	Source
	unit Unit
	cfg  *CopyConfig
}

func (s lackingSource) Units(context.Context, int64) ([]Unit, []error, error) {
	return []Unit{s.unit}, nil, nil
}

func (lackingSource) Parallel() bool { return false }

func (s lackingSource) Open(ctx context.Context, u Unit) (*Reading, error) {
	target, err := s.cfg.Read(ctx, u)
	if err != nil {
		return nil, &Temporary{fmt.Errorf("read the target: %w", err)}
	}
	r, err := s.Source.Open(ctx, u)
	if err != nil {
		return nil, errors.Join(err, target.Close())
	}
	set := &lackingSet{ChunkSeriesSet: r.ChunkSeriesSet, target: target, hasTarget: target.Next(), lacking: func(target, source storage.ChunkSeries) (storage.ChunkSeries, error) {
		return s.cfg.Lacking(target, source, u)
	}}
	return &Reading{ChunkSeriesSet: set, Damaged: r.Damaged, Close: func() error { return errors.Join(r.Close(), target.Close()) }}, nil
}

// A lackingSet is what a target lacks of the series of a source. Both are sorted by labels.
type lackingSet struct {
	storage.ChunkSeriesSet
	target    storage.ChunkSeriesSet
	hasTarget bool
	lacking   func(target, source storage.ChunkSeries) (storage.ChunkSeries, error)
	found     storage.ChunkSeries
	err       error
}

// At implements storage.ChunkSeriesSet.
func (s *lackingSet) At() storage.ChunkSeries { return s.found }

func (s *lackingSet) Next() bool {
	for s.err == nil && s.ChunkSeriesSet.Next() {
		one := s.ChunkSeriesSet.At()
		for s.hasTarget && labels.Compare(s.target.At().Labels(), one.Labels()) < 0 {
			s.hasTarget = s.target.Next()
		}
		var target storage.ChunkSeries
		if s.hasTarget && labels.Equal(s.target.At().Labels(), one.Labels()) {
			target = s.target.At()
		}
		found, err := s.lacking(target, one)
		if err != nil {
			s.err = fmt.Errorf("compare %s: %w", one.Labels(), err)
		} else if found != nil {
			s.found = found
			return true
		}
	}
	return false
}

// Err implements storage.ChunkSeriesSet. What a target does not answer may come another time, as what a source does not.
func (s *lackingSet) Err() error {
	if err := errors.Join(s.err, s.target.Err()); err != nil {
		return &Temporary{err}
	}
	return s.ChunkSeriesSet.Err()
}

// notNoted is a target that does not note which units are done: the comparison tells.
type notNoted struct{ Target }

func (notNoted) Done(context.Context, string) ([]string, error) { return nil, nil }

func (notNoted) SetDone(context.Context, string, ...meta.Part) error { return nil }
