package limits

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A bucket has tokens for what a rate allows.
type bucket struct {
	mu      sync.Mutex
	limiter *rate.Limiter
}

func newBucket() *bucket { return &bucket{limiter: rate.NewLimiter(rate.Inf, 0)} }

// set makes a bucket allow perSecond, 0 for no limit, with a burst that is what a second allows if it is 0.
func (b *bucket) set(now time.Time, perSecond float64, burst int) {
	if perSecond == 0 {
		if b.limiter.Limit() != rate.Inf {
			b.limiter = rate.NewLimiter(rate.Inf, 0)
		}
		return
	}
	if burst == 0 {
		burst = max(1, int(math.Ceil(perSecond)))
	}
	if b.limiter.Limit() == rate.Inf {
		b.limiter = rate.NewLimiter(rate.Limit(perSecond), burst)
		return
	}
	if b.limiter.Limit() != rate.Limit(perSecond) {
		b.limiter.SetLimitAt(now, rate.Limit(perSecond))
	}
	if b.limiter.Burst() != burst {
		b.limiter.SetBurstAt(now, burst)
	}
}

// at takes n tokens, or all of a burst if n is more than that: so a large write is not refused for ever. If they are not there it takes none and returns
// after what time they are.
func (b *bucket) at(now time.Time, perSecond float64, burst, n int) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(now, perSecond, burst)
	if perSecond == 0 {
		return 0
	}
	r := b.limiter.ReserveN(now, min(n, b.limiter.Burst()))
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}

// used returns which part of a burst is used now, from 0 to 1.
func (b *bucket) used(now time.Time, perSecond float64, burst int) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.set(now, perSecond, burst)
	if perSecond == 0 {
		return 0
	}
	most := float64(b.limiter.Burst())
	return (most - max(0, b.limiter.TokensAt(now))) / most
}
