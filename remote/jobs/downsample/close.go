package downsample

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/rollup"
)

// ErrClosed marks samples of days that are closed: their samples are about to be deleted, or are.
var ErrClosed = errors.New("the day of the sample is closed: only its rollups are kept, see --retention.resolution-raw")

// errUnknown marks samples of days that may be closed.
var errUnknown = errors.New("whether the day of the sample is closed is not known now")

// Appender returns an appender that refuses samples of closed days, and lets all others pass.
func (d *Days) Appender(appender bucketstore.Appender) bucketstore.Appender {
	return &closing{appender, d}
}

type closing struct {
	bucketstore.Appender
	days *Days
}

func (c *closing) Append(ctx context.Context, samples []bucketstore.Sample) error {
	d := c.days
	if !d.cfg.Store.Traits().Shared {
		d.appending.RLock()
		defer d.appending.RUnlock()
	}
	begin := d.cfg.Now()
	s, isFresh := d.at(begin)
	closed := s.Closed
	if !isFresh {
		closed = max(s.Begun, dueAt(begin.Add(maxSkew))) // no later day can be closed by now
	}
	err := c.appendOpen(ctx, samples, closed, isFresh)
	if !d.tookLong(begin) {
		return err
	}
	if err := d.refresh(ctx); err != nil {
		return err
	}
	for _, s := range samples {
		if now := d.get().Closed; closed < s.T && s.T <= now {
			return fmt.Errorf("%w meanwhile: it is at %d, and days up to %d are closed", ErrClosed, s.T, now)
		}
	}
	return err
}

// dueAt returns the end of the last day whose rollups may be made at a time.
func dueAt(now time.Time) int64 { return rollup.DayOf(now.Add(-delay).UnixMilli()) }

// appendOpen appends the samples of days after closed, in milliseconds, and fails for the others. 0 closes none.
// These are refused for ever if isPermanent is set.
func (c *closing) appendOpen(ctx context.Context, samples []bucketstore.Sample, closed int64, isPermanent bool) error {
	isClosed := func(s bucketstore.Sample) bool { return s.T <= closed && closed > 0 }
	if !slices.ContainsFunc(samples, isClosed) {
		return c.Appender.Append(ctx, samples)
	}
	var failed bucketstore.SamplesError
	var open []bucketstore.Sample
	var at []int // positions of open in samples
	for i, s := range samples {
		if !isClosed(s) {
			open, at = append(open, s), append(at, i)
			continue
		}
		failed.Failed = append(failed.Failed, i)
		failed.Err = fmt.Errorf("%w: it is at %d", errUnknown, s.T)
		if isPermanent {
			failed.Err = fmt.Errorf("%w: it is at %d, and days up to %d are closed", ErrClosed, s.T, closed)
			failed.Refuse(i, failed.Err)
		}
	}
	err := c.Appender.Append(ctx, open)
	var part *bucketstore.SamplesError
	if err != nil && !errors.As(err, &part) {
		return err
	}
	if part != nil {
		failed.Err = part.Err
		for _, i := range part.Failed {
			failed.Failed = append(failed.Failed, at[i])
			if err, ok := part.Refused[i]; ok {
				failed.Refuse(at[i], err)
			}
		}
		slices.Sort(failed.Failed)
	}
	return &failed
}
