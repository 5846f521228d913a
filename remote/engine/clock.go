package engine

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/promtable/promtable/remote/ingest"
)

// latestBound is the latest timeBound that the clock has given, in this process or in one
// before, in milliseconds. Unlike the clock it never goes back. It is safe for concurrent use.
type latestBound struct{ t atomic.Int64 }

// raise raises l to t, if t is later, and returns how far t is behind l.
func (l *latestBound) raise(t int64) (behind int64) {
	for {
		latest := l.t.Load()
		if t <= latest {
			return latest - t
		}
		if l.t.CompareAndSwap(latest, t) {
			return 0
		}
	}
}

// checkClock returns an error if the clock is behind a time that it had before, and more than half of the n
// samples and histograms in batch would be refused only because of that. The sender must
// repeat them: refused samples would be lost. If it is fewer, the earlier time of the
// clock may have been the wrong one, and the others need not wait.
func (e *Engine) checkClock(batch []ingest.Series, n int, bound timeBound) error {
	behind := e.latest.raise(bound.t)
	if behind == 0 {
		return nil
	}
	refused := 0
	count := func(t int64) {
		if t > bound.t && t <= bound.t+behind {
			refused++
		}
	}
	for i := range batch {
		for j := range batch[i].Samples {
			count(batch[i].Samples[j].T)
		}
		for j := range batch[i].Histograms {
			count(batch[i].Histograms[j].T)
		}
	}
	if 2*refused <= n {
		return nil
	}
	return fmt.Errorf("the adapter's clock is behind by %s, and %d of %d samples are too far ahead of it; send them again",
		time.Duration(behind)*time.Millisecond, refused, n)
}
