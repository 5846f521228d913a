package downsample

import (
	"context"
	"fmt"
)

// WriteOpen calls write, which stores samples of days after closed only, a result of Closed. The error is an ErrClosed if a later
// day is closed by now, or while they were written: then some samples may be of a day whose rollups are final without them, and the
// caller leaves them out and writes the others again.
func (d *Days) WriteOpen(ctx context.Context, closed int64, write func() error) error {
	if !d.cfg.Store.Traits().Shared {
		d.appending.RLock()
		defer d.appending.RUnlock()
	}
	begin := d.cfg.Now()
	s, isFresh := d.at(begin)
	if !isFresh {
		if err := d.refresh(ctx); err != nil {
			return err
		}
		s = d.get()
	}
	if s.Closed > closed {
		return fmt.Errorf("%w: days up to %d are closed now, and those up to %d were", ErrClosed, s.Closed, closed)
	}
	err := write()
	if !d.tookLong(begin) {
		return err
	}
	if err := d.refresh(ctx); err != nil {
		return err
	}
	if now := d.get().Closed; now > closed {
		return fmt.Errorf("%w meanwhile: days up to %d", ErrClosed, now)
	}
	return err
}
