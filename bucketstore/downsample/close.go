package downsample

import (
	"context"
	"errors"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
)

// ErrClosed marks samples of days that are closed: their samples are about to be deleted, or are.
var ErrClosed = errors.New("the day of the sample is closed: only its rollups are kept")

// Appender returns an appender that refuses samples of closed days, and lets all others pass.
func (d *Days) Appender(appender bucketstore.Appender) bucketstore.Appender {
	return &closing{appender, d}
}

type closing struct {
	bucketstore.Appender
	days *Days
}

// Append implements bucketstore.Appender.
func (c *closing) Append(ctx context.Context, samples []bucketstore.Sample) error {
	d := c.days
	if d.cfg.Sole {
		d.appending.RLock()
		defer d.appending.RUnlock()
	}
	s, isFresh := d.get()
	closed := s.Closed
	if !isFresh {
		closed = s.Begun // no more can be closed by now
	}
	var open []bucketstore.Sample
	var failed bucketstore.SamplesError
	for i := range samples {
		if samples[i].T > closed {
			if failed.Failed != nil {
				open = append(open, samples[i])
			}
			continue
		}
		if failed.Failed == nil {
			open = append(open, samples[:i]...)
		}
		failed.Failed = append(failed.Failed, i)
		failed.Err = fmt.Errorf("%w: it is at %d, and days up to %d are closed", ErrClosed, samples[i].T, closed)
		if isFresh {
			failed.Refuse(i, failed.Err)
		}
	}
	if failed.Failed == nil {
		return c.Appender.Append(ctx, samples)
	}
	if err := c.Appender.Append(ctx, open); err != nil {
		return err // all are sent again
	}
	return &failed
}
