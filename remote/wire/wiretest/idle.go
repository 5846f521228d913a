package wiretest

import (
	"context"

	"github.com/promtable/promtable/bucketstore"
)

// IdleStore is a Store whose INDEX and CURRENT take everything and hold nothing.
type IdleStore struct{ bucketstore.Store }

// Apply implements bucketstore.Store.
func (s IdleStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Index || table == bucketstore.Current {
		return nil
	}
	return s.Store.Apply(ctx, table, muts)
}

// IdleAppender counts samples and stores none. Its references are those of
// another Appender.
type IdleAppender struct {
	bucketstore.Appender
	Samples int
}

// Append implements bucketstore.Appender.
func (a *IdleAppender) Append(_ context.Context, samples []bucketstore.Sample) error {
	a.Samples += len(samples)
	return nil
}
