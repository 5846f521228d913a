package jobs

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// A Pace bounds how many rows a second a work reads. One goroutine uses it.
type Pace struct {
	limiter *rate.Limiter
	now     func() time.Time
	sleep   Sleep
	isUsed  bool
}

// paceBurst is how many rows are read without a wait after a pause.
const paceBurst = 200

// NewPace returns a Pace by a clock.
func NewPace(rowsPerSecond float64, now func() time.Time, sleep Sleep) *Pace {
	return &Pace{rate.NewLimiter(rate.Limit(rowsPerSecond), paceBurst), now, sleep, false}
}

// Set changes the rate.
func (p *Pace) Set(rowsPerSecond float64) { p.limiter.SetLimitAt(p.now(), rate.Limit(rowsPerSecond)) }

// Wait waits until n rows, which were read, were due.
func (p *Pace) Wait(ctx context.Context, n int) error {
	now := p.now()
	if !p.isUsed { // the first rows wait, too
		p.isUsed = p.limiter.AllowN(now, paceBurst)
	}
	var wait time.Duration
	for ; n > 0; n -= paceBurst {
		wait = p.limiter.ReserveN(now, min(n, paceBurst)).DelayFrom(now)
	}
	return p.sleep(ctx, wait)
}
