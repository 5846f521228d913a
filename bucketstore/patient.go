package bucketstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patient returns store for work in the background: where it is overloaded, an Apply waits
// for as long as the store says and is repeated, unless its context would end before. A
// CheckAndApply is not repeated, because it may have happened.
func Patient(store Store) Store { return patient{store} }

type patient struct{ Store }

// Apply implements Store.
func (p patient) Apply(ctx context.Context, table Table, muts []Mutation) error {
	for {
		err := p.Store.Apply(ctx, table, muts)
		var overload *OverloadError
		if !errors.As(err, &overload) {
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < overload.RetryAfter {
			return err
		}
		timer := time.NewTimer(overload.RetryAfter)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-timer.C:
		}
	}
}
