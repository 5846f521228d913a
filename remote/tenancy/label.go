package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/series"
)

// A ByLabel stores each series of a request in the tenant that one of its labels names. It is for one request.
type ByLabel struct {
	Engines *Engines
	// Label is the name of the label. It is not stored, unless Keep is set.
	Label string
	Keep  bool
	// MayUse, if set, says whether the sender of a context may write to a tenant.
	MayUse func(ctx context.Context, tenant string) bool

	// tenants are those of the series that came.
	tenants map[string]bool
}

// Lookup finds nothing: each engine has a cache of its own, and which one is asked is known when labels are decoded.
func (b *ByLabel) Lookup(ingest.WireText) *seriescache.Entry { return nil }

// Symbols returns nil.
func (b *ByLabel) Symbols() *seriescache.SymbolTable { return nil }

// AppenderV2 returns an appender that chooses tenants in the same way.
func (b *ByLabel) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return engine.NewAppender(ctx, b)
}

// Append stores each series in its tenant. One that names none, or one that is not there or not the sender's, goes to rejected. An error says that
// some are not stored, which may be of any tenant.
func (b *ByLabel) Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	byTenant := make(map[string][]ingest.Series)
	builder := labels.NewBuilder(labels.EmptyLabels())
	for _, s := range batch {
		name := s.Labels.Get(b.Label)
		if err := b.check(ctx, name); err != nil {
			rejected.Add(ingest.ReasonLabels, s.Size(), fmt.Errorf("series %s: %w", series.Abbreviate(s.Labels), err))
			continue
		}
		if !b.Keep {
			builder.Reset(s.Labels)
			s.Labels = builder.Del(b.Label).Labels()
		}
		s.WireText = ingest.WireText{}
		byTenant[name] = append(byTenant[name], s)
	}
	if b.tenants == nil {
		b.tenants = make(map[string]bool)
	}
	for _, name := range slices.Sorted(maps.Keys(byTenant)) {
		of, writeErr := b.write(ctx, name, byTenant[name], rejected)
		stored, err = stored.Plus(of), errors.Join(err, writeErr)
	}
	return stored, err
}

// check says why a series of a tenant cannot be stored, by its name and its sender.
func (b *ByLabel) check(ctx context.Context, tenant string) error {
	if tenant == "" {
		return fmt.Errorf("it has no label %s, which names its tenant", b.Label)
	}
	if err := series.CheckTenant(tenant); err != nil {
		return err
	}
	if b.MayUse != nil && !b.MayUse(ctx, tenant) {
		return fmt.Errorf("its sender may not use the tenant %s", tenant)
	}
	return nil
}

// write stores the series of one tenant.
func (b *ByLabel) write(ctx context.Context, tenant string, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error) {
	ctx = scope.With(ctx, []string{tenant})
	e, err := b.Engines.Writer(ctx)
	if err != nil && request.Status(ctx, request.Remote, err) == http.StatusForbidden {
		for i := range batch {
			rejected.Add(ingest.ReasonLabels, batch[i].Size(), fmt.Errorf("series %s: %w", series.Abbreviate(batch[i].Labels), err))
		}
		return ingest.Stored{}, nil
	}
	if err != nil {
		return ingest.Stored{}, err
	}
	b.tenants[tenant] = true
	return e.Append(ctx, batch, rejected)
}

// AppendMetadata stores metadata in each tenant whose series came before: it names none itself.
func (b *ByLabel) AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) (err error) {
	for _, name := range slices.Sorted(maps.Keys(b.tenants)) {
		e, writeErr := b.Engines.Writer(scope.With(ctx, []string{name}))
		if writeErr == nil {
			writeErr = e.AppendMetadata(ctx, batch, rejected)
		}
		err = errors.Join(err, writeErr)
	}
	return err
}
