package remote

import (
	"context"
	"time"

	upstream "github.com/prometheus/prometheus/util/gate"
)

// gate lets a number of requests through at once and makes others wait.
type gate struct {
	slots   *upstream.Gate
	maxWait time.Duration
}

func newGate(n int, maxWait time.Duration) *gate {
	return &gate{slots: upstream.New(n), maxWait: maxWait}
}

// enter waits for a slot, until ctx ends or maxWait has passed: then the error
// is errOverloaded. Whoever has entered leaves.
func (g *gate) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.maxWait)
	defer cancel()
	if g.slots.Start(ctx) != nil {
		return errOverloaded
	}
	return nil
}

func (g *gate) leave() { g.slots.Done() }
