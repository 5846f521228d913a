package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
)

// lateAfter is how old a sample must be for others to be told of its time when it is written. What caches keep is older by far, also where
// clocks differ by minutes.
const lateAfter = 2 * time.Minute

// A Late is a span of times at which samples of a tenant were written late.
type Late struct {
	// Tenant is empty in a store without tenants.
	Tenant string
	// Mint and Maxt are in milliseconds, inclusive.
	Mint, Maxt int64
}

// lateWrites has the spans of late samples, for others.
type lateWrites struct {
	mu sync.Mutex
	// pending has one for each tenant: that of all since others asked last.
	pending map[string]Late
	told    recent[Late]
}

// Written notes the late ones of samples of a tenant. It must be called when reads find them, or may find them, and before the write is
// answered.
func (f *Fleet) Written(tenant string, samples []bucketstore.Sample) {
	limit := f.lateLimit()
	var of Late
	isLate := false
	for i := range samples {
		switch t := samples[i].T; {
		case t >= limit:
		case !isLate:
			of, isLate = Late{tenant, t, t}, true
		default:
			of.Mint, of.Maxt = min(of.Mint, t), max(of.Maxt, t)
		}
	}
	if isLate {
		f.late.add(of)
	}
}

// WrittenBetween is Written for samples at some of the times from mint to maxt, in milliseconds, inclusive.
func (f *Fleet) WrittenBetween(tenant string, mint, maxt int64) {
	if limit := f.lateLimit(); mint < limit {
		f.late.add(Late{tenant, mint, min(maxt, limit-1)})
	}
}

// lateLimit is the time from which on samples are not late.
func (f *Fleet) lateLimit() int64 { return f.cfg.Now().Add(-lateAfter).UnixMilli() }

func (w *lateWrites) add(l Late) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.pending[l.Tenant]; ok {
		l.Mint, l.Maxt = min(l.Mint, before.Mint), max(l.Maxt, before.Maxt)
	}
	w.pending[l.Tenant] = l
}

// since is that of recent.
func (w *lateWrites) since(number uint64) (all []Late, next uint64, isLost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.pending {
		w.told.add(l)
	}
	clear(w.pending)
	return w.told.since(number)
}

// Confirm says that all that write have told what they have written late, until the call or later: what Config.Late and Config.Lost have not
// been called for is as it was. Without an answer of each nothing is confirmed.
func (f *Fleet) Confirm(ctx context.Context) bool {
	if f.isAlone() {
		return f.isMember()
	}
	r := f.nextRound()
	select {
	case <-r.done:
		return r.isWhole
	case <-ctx.Done():
		return false
	}
}

// isMember says whether this process is one, beside which no other writes that is none.
func (f *Fleet) isMember() bool { return f.cfg.Own != "" && f.cfg.Joins }
