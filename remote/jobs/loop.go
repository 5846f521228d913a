package jobs

import (
	"context"
	"time"
)

// A Sleep waits, and returns the error of ctx when that ends. It is bucketstore.Sleep, or that of a test.
type Sleep func(ctx context.Context, d time.Duration) error

// A Loop is a work that is done again and again.
type Loop struct {
	// Interval is the time from the end of a call of Work to the next.
	Interval time.Duration
	Sleep    Sleep
	Work     func(ctx context.Context) error
	// Failed is called with an error of Work, unless the context has ended.
	Failed func(err error)
}

// Run calls Work at once, and then at each interval until ctx ends.
func (l Loop) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := l.Work(ctx); err != nil && ctx.Err() == nil {
			l.Failed(err)
		}
		if l.Sleep(ctx, l.Interval) != nil {
			return
		}
	}
}
