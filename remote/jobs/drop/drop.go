// Package drop removes the tenants that an operator drops: what META says of a tenant hides it at once from all adapters, and
// a Remover takes its rows out of the tables later, range by range. The row of the tenant stays in META and says when that was done and how
// many rows of which table went.
package drop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

const (
	// interval is how often Run looks for tenants to remove.
	interval = time.Minute
	// Propagation is the Config.Settle of a process that serves: until each adapter has read that a tenant is dropped, and its writes from
	// before have ended.
	Propagation = 2 * time.Minute
	// maxPasses is how often the rows of a tenant are removed until none is left.
	maxPasses = 3
)

// ErrWaiting says that rows cannot be removed yet.
var ErrWaiting = errors.New("a dropped tenant waits")

// Config says what a Remover works on. All but Settle, Retire, Waits, Logger and Registerer is required.
type Config struct {
	Meta *meta.Store
	// Store holds the rows, beneath all others. Schema is that of all tenants.
	Store  bucketstore.Store
	Schema series.Schema
	Now    func() time.Time
	// Settle is for how long a tenant must be hidden before its rows are removed.
	Settle time.Duration
	// Retire, if set, ends what this process itself writes of a tenant, and stores all that it holds in memory, or fails.
	Retire func(ctx context.Context, tenant string) error
	// Waits, if set, returns an error as long as another process may hold samples that are not in Store.
	Waits func(ctx context.Context) error
	// Logger and Registerer may be nil.
	Logger     log.Logger
	Registerer prometheus.Registerer
}

// A Remover removes the rows of tenants. One call of Once runs at a time; to run several processes is harmless.
type Remover struct {
	cfg      Config
	failures prometheus.Counter
}

// New returns a Remover, which does nothing before Run or Once.
func New(cfg Config) *Remover {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	return &Remover{cfg: cfg, failures: metricset.New(cfg.Registerer).Counter("adapter_tenant_removal_failures_total", "Attempts to remove the rows of a dropped tenant that failed and are repeated.")}
}

// Run calls Once at an interval until ctx ends, and logs errors.
func (r *Remover) Run(ctx context.Context) {
	jobs.Loop{Interval: interval, Sleep: bucketstore.Sleep, Work: r.Once, Failed: func(err error) {
		if errors.Is(err, ErrWaiting) {
			level.Info(r.cfg.Logger).Log("msg", "the rows of a dropped tenant are not removed yet", "reason", err)
			return
		}
		r.failures.Inc()
		level.Warn(r.cfg.Logger).Log("msg", "the rows of a dropped tenant are not removed yet, trying again", "err", err)
	}}.Run(ctx)
}

// Mark marks a tenant as dropped, for an operator that by names. On success no adapter finds it any more after 10 seconds, and this
// process as soon as it has read META again.
func Mark(ctx context.Context, about *meta.Store, now time.Time, name, by string) error {
	all, err := about.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		switch {
		case t.Name != name:
			continue
		case !t.InUse():
			return nil
		}
		t.Dropping, t.By = now.UnixMilli(), by
		if put, err := about.PutTenant(ctx, &t); err != nil || put {
			return err
		}
		return fmt.Errorf("the tenant %s has changed meanwhile: try again", name)
	}
	return fmt.Errorf("there is no tenant %s", name)
}

// Once removes the rows of all tenants that are dropped, as far as that may begin.
func (r *Remover) Once(ctx context.Context) error {
	all, err := r.cfg.Meta.Tenants(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range all {
		if !t.InUse() && t.Dropped == 0 {
			if err := r.remove(ctx, t); err != nil {
				errs = append(errs, fmt.Errorf("tenant %s: %w", t.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// remove removes all of a tenant, and notes that it did.
func (r *Remover) remove(ctx context.Context, t meta.Tenant) error {
	if left := r.cfg.Settle - r.cfg.Now().Sub(time.UnixMilli(t.Dropping)); left > 0 {
		return fmt.Errorf("%w for %s more, until all writes from before have ended", ErrWaiting, left.Round(time.Second))
	}
	if r.cfg.Waits != nil {
		if err := r.cfg.Waits(ctx); err != nil {
			return fmt.Errorf("%w: %w", ErrWaiting, err)
		}
	}
	if r.cfg.Retire != nil {
		if err := r.cfg.Retire(ctx, t.Name); err != nil {
			return fmt.Errorf("store what is in memory: %w", err)
		}
	}
	schema, err := r.cfg.Schema.ForTenant(t.Name)
	if err != nil {
		return err
	}
	if err := r.removeDeletions(ctx, t.Name); err != nil {
		return err
	}
	removed := make(map[string]int64)
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		if removed[spec.Table.String()], err = r.removeRows(ctx, spec, schema.TenantRange()); err != nil {
			return fmt.Errorf("table %s: %w", spec.Table, err)
		}
	}
	t.Removed, t.Dropped = removed, r.cfg.Now().UnixMilli()
	put, err := r.cfg.Meta.PutTenant(ctx, &t)
	if err != nil || !put { // else another process has done the same
		return err
	}
	level.Info(r.cfg.Logger).Log("msg", "all rows of a dropped tenant are removed", "tenant", t.Name, "by", t.By,
		"metric_rows", removed["METRIC"], "current_rows", removed["CURRENT"], "index_rows", removed["INDEX"], "meta_rows", removed["META"])
	return nil
}

// removeDeletions removes the records of deletions of a tenant: there is nothing left that they cover.
func (r *Remover) removeDeletions(ctx context.Context, tenant string) error {
	all, err := r.cfg.Meta.Deletions(ctx)
	if err != nil {
		return err
	}
	for _, d := range all {
		if d.Tenant == tenant {
			if err := r.cfg.Meta.RemoveDeletion(ctx, &d); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeRows removes the rows of a range, and returns how many there were before. It has looked that none is left.
func (r *Remover) removeRows(ctx context.Context, spec bucketstore.TableSpec, rows series.RowRange) (before int64, err error) {
	if before, err = r.count(ctx, spec, rows, 0); err != nil || before == 0 {
		return before, err
	}
	for range maxPasses {
		if err := r.cfg.Store.Drop(ctx, spec.Table, rows); err != nil {
			return before, err
		}
		if left, err := r.count(ctx, spec, rows, 1); err != nil || left == 0 {
			return before, err
		}
	}
	return before, fmt.Errorf("rows are still there after %d removals: something writes to them", maxPasses)
}

// count returns how many rows a range has, up to a limit unless that is 0.
func (r *Remover) count(ctx context.Context, spec bucketstore.TableSpec, rows series.RowRange, limit int) (n int64, err error) {
	req := bucketstore.ScanRequest{Table: spec.Table, Rows: []series.RowRange{rows}, Limit: limit}
	for _, family := range spec.Families {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: family.Name})
	}
	err = r.cfg.Store.Scan(ctx, req, func(bucketstore.Row) error {
		n++
		return nil
	})
	return n, err
}
