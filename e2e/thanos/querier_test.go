package thanos

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/thanos-io/objstore"
	"github.com/thanos-io/objstore/providers/filesystem"
	"github.com/thanos-io/thanos/pkg/block"
	"github.com/thanos-io/thanos/pkg/block/metadata"
	"github.com/thanos-io/thanos/pkg/query"
	"github.com/thanos-io/thanos/pkg/store"
)

// A matrix is the answer to a range query: the values of each series by time, in milliseconds, and what was warned of.
type matrix struct {
	of       map[string]map[int64]float64
	warnings []string
}

// nameOf names a series, without the label that Thanos adds.
func nameOf(ls labels.Labels) string {
	return labels.NewBuilder(ls).Del("cluster", "__name__").Labels().String()
}

// ask runs a range query in Prometheus' engine.
func ask(t *testing.T, q storage.Queryable, expr string, start, end, step int64) matrix {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e9, Timeout: time.Minute})
	defer engine.Close()
	asked, err := engine.NewRangeQuery(t.Context(), q, nil, expr, time.UnixMilli(start), time.UnixMilli(end), time.Duration(step)*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	result := asked.Exec(t.Context())
	series, err := result.Matrix()
	if err := errors.Join(result.Err, err); err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	m := matrix{of: make(map[string]map[int64]float64), warnings: warningsOf(result.Warnings)}
	for _, s := range series {
		values := make(map[int64]float64)
		for _, p := range s.Floats {
			values[p.T] = p.F
		}
		m.of[nameOf(s.Metric)] = values
	}
	return m
}

func warningsOf(a annotations.Annotations) []string {
	texts, _ := a.AsStrings("", 0, 0)
	return texts
}

// samplesOf returns a block with samples as Prometheus reads it.
func samplesOf(t *testing.T, dir string) storage.Queryable {
	t.Helper()
	b, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return storage.QueryableFunc(func(mint, maxt int64) (storage.Querier, error) { return tsdb.NewBlockQuerier(b, mint, maxt) })
}

// thanosOf returns a block as the store gateway and the querier of Thanos read it, at its resolution.
func thanosOf(t *testing.T, dir string, resolution int64) storage.Queryable {
	t.Helper()
	ctx := t.Context()
	bucket, err := filesystem.NewBucket(filepath.Join(t.TempDir(), "bucket"))
	if err != nil {
		t.Fatal(err)
	}
	if err := block.Upload(ctx, log.NewNopLogger(), bucket, dir, metadata.NoneFunc); err != nil {
		t.Fatal(err)
	}
	read := objstore.WithNoopInstr(bucket)
	cache := t.TempDir()
	fetcher, err := block.NewMetaFetcher(log.NewNopLogger(), 1, read, block.NewConcurrentLister(log.NewNopLogger(), read), cache, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := store.NewBucketStore(read, fetcher, cache, store.NewChunksLimiterFactory(0), store.NewSeriesLimiterFactory(0), store.NewBytesLimiterFactory(0),
		store.NewGapBasedPartitioner(store.PartitionerMaxGapSize), 1, store.DefaultPostingOffsetInMemorySampling, false, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gateway.Close() })
	if err := gateway.SyncBlocks(ctx); err != nil {
		t.Fatal(err)
	}
	of := query.NewQueryableCreator(log.NewNopLogger(), prometheus.NewRegistry(), gateway, 1, time.Minute, "", 64)
	return of(false, nil, nil, resolution, false, false, nil, query.NoopSeriesStatsReporter)
}
