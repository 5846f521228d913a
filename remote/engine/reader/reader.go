// Package reader reads series: it asks the index which series a selector matches,
// reads their rows in batches, merges the samples of each row, and encodes them as
// chunks.
//
//	Query, Reader   what can be asked for                       reader.go
//	Select          the series of a query, batch by batch       select.go
//	batchReader     how many series and rows are read at once   batch.go, parts.go, scan.go
//	rowReader       from the cells of a row to chunks           gather.go, row.go, chunks.go, previous.go
//	rollupScan      rollups in place of samples                 rollups.go, points.go
//	Reduction       as samples, for those who compute on them   reduced.go
//	Exemplars       beside the samples of a series              exemplars.go
//	Stored          cells, as another store can keep them       stored.go
//	Explain         which rows a query reads                    explain.go, origins.go
//	Usage           how much was read for a request             usage.go
//	Cut             before which nothing is read                cut.go
//	                series that are kept for less long          groups.go
package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Config says what a Reader reads. Store and Index are required.
type Config struct {
	Store  bucketstore.Store
	Index  *index.Index
	Schema series.Schema
	// Registerer may be nil.
	Registerer prometheus.Registerer
	Limits     Limits
	// BatchBytes bounds a batch of rows, in bytes. 0 is 8 MiB, which is the most.
	BatchBytes int
	// StoredMatchers, if set, returns the matchers on labels that are stored. It
	// leaves its argument as it is.
	StoredMatchers func([]*labels.Matcher) []*labels.Matcher
	// Timeline says what is shown. Nil is all samples, and no rollups.
	Timeline timeline.Func
	// Now is the clock.
	Now func() time.Time
}

// Limits bound what one request may ask for.
type Limits struct {
	// MaxSeries is how many series a selector may match. 0 is 2,000,000: as many as an
	// adapter remembers as written. They take 80 MB, and with their labels 1 GB if the
	// index does not have these in memory. What a PromQL query holds of them counts as its
	// memory, too.
	MaxSeries int
	// MaxSamples is how many samples a selector may read, if its query is not Passing. 0 is
	// 50,000,000.
	MaxSamples int
	// MaxSeriesBytes is how many bytes the chunks of one series may take. 0 is
	// 50,000,000, which is what Prometheus takes of a series at most.
	MaxSeriesBytes int
}

// WithDefaults returns l with a value for each limit that is zero.
func (l Limits) WithDefaults() Limits {
	l.MaxSeries = cmp.Or(l.MaxSeries, 2_000_000)
	l.MaxSamples = cmp.Or(l.MaxSamples, 50_000_000)
	l.MaxSeriesBytes = cmp.Or(l.MaxSeriesBytes, 50_000_000)
	return l
}

// ErrLimit marks a query that asks for more than the limits allow: the fault of its
// sender.
var ErrLimit = errors.New("query exceeds a limit")

func limitError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLimit, fmt.Sprintf(format, args...))
}

// Query asks for samples. Mint and Maxt are in milliseconds, both inclusive,
// and may lie outside what can be stored: [MinInt64, MaxInt64] is everything.
type Query struct {
	Matchers   []*labels.Matcher
	Mint, Maxt int64
	// SeriesOnly asks for the labels alone: the series have no chunks, and a
	// series is named if the index has it in that time.
	SeriesOnly bool
	// Enough is how many series are enough then, any of those that match, and how many
	// label names or values. 0 is for all.
	Enough int
	// Decoded asks for samples and not for bytes: chunks of floats without start
	// timestamps may be a *chunk.Decoded, which costs nothing to iterate over
	// and, unlike others, something to ask for Bytes.
	Decoded bool
	// Passing says that nothing of a series is used after the next one is asked for: then
	// memory of decoded samples is used again, and the limit on samples does not hold.
	Passing bool
	// Finish, if set, is called before that memory is used again. Until it returns, all series that were delivered may be used.
	Finish func()
	// Hold, if set, is called when the memory that the found series take has grown to so
	// many bytes. Its error ends the query and is returned unchanged.
	Hold func(bytes int) error
	// Lend, if set, is called with the bytes of each batch that is read, and with as many less when it is delivered. Its
	// error ends the query and is returned unchanged.
	Lend func(bytes int) error
	// Compute, if set, runs functions that compute, and not those that wait. Their error is returned unchanged, as is its own. Rows of
	// samples are merged with it, as many at a time as there are cores.
	Compute func(context.Context, func() error) error
	// Share is how many queries are answered at the same time for one request, and
	// share the memory that one alone may take: the batches of each are smaller
	// accordingly, down to 128 KB. 0 is the same as 1.
	Share int

	// Rollups, if set, says which windows are looked at, and whether buckets will do in place of samples, where they tell the same.
	// The series are then a rollup.PointSeries if it is of use, unless they are reduced.
	Rollups *Rollups

	// Grouping has the labels by which the answer is grouped, for Unread.
	Grouping []string

	// Kept asks for the samples that rollups keep where all samples are gone: the first and the last of a bucket, the least and the
	// greatest, those around resets, and a staleness marker that ends it. With Rollups that Reduce it asks for samples that tell of their windows what all
	// samples do, of all times.
	Kept bool

	// cut is that of the request, in milliseconds, if hasCut is set.
	cut    int64
	hasCut bool
	// later are the cuts of the series of a group, where they are later.
	later [rollup.NumResolutions]int64
}

// span returns the times of q that can be stored and are not cut, half-open. It is empty
// if there are none.
func (q Query) span() (start, limit int64) {
	start = max(q.Mint, q.cut, 0)
	return start, max(start, min(q.Maxt, series.MaxTime)+1)
}

// A Reader reads series. It is safe for concurrent use.
type Reader struct {
	// Sizes must not change during a call.
	Sizes
	cfg     Config
	metrics metrics

	// stop ends what runs in the background, and closing.
	stop       context.CancelFunc
	closing    context.Context
	background sync.WaitGroup
	reads      *reads
}

// Sizes say how much is read at once.
type Sizes struct {
	// BatchBytes is how large a batch of rows should be, in bytes.
	BatchBytes int
	// RowCells is how many cells of a row one read should return.
	RowCells int
	// MinScanSeries is how many series a scan reads at least, if several scans read a
	// batch at the same time.
	MinScanSeries int
}

// New returns a Reader with the default sizes.
func New(cfg Config) *Reader {
	cfg.Limits = cfg.Limits.WithDefaults()
	if cfg.Timeline == nil {
		cfg.Timeline = timeline.Unbounded
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	size := min(cmp.Or(cfg.BatchBytes, batchBytes), batchBytes)
	r := &Reader{cfg: cfg, metrics: newMetrics(cfg.Registerer), reads: newReads(cfg.Now()), Sizes: Sizes{max(size, minBatchBytes), rowCells, minScanSeries}}
	r.closing, r.stop = context.WithCancel(context.Background())
	return r
}

// Close ends what is read in the background, and waits for it. No other call may
// be running or follow.
func (r *Reader) Close() {
	r.stop()
	r.background.Wait()
}

func (r *Reader) storedMatchers(ms []*labels.Matcher) []*labels.Matcher {
	if r.cfg.StoredMatchers == nil {
		return ms
	}
	return r.cfg.StoredMatchers(ms)
}

// Find asks the index for the series of q. The error is ErrLimit if they are more
// than the limits allow, and samples are asked for.
func (r *Reader) Find(ctx context.Context, q Query) (*index.Result, error) {
	in := r.indexQuery(ctx, q)
	if !q.SeriesOnly {
		in.Enough, in.MaxSeries = 0, r.cfg.Limits.MaxSeries
	}
	if q.Hold != nil {
		in.Hold = func(series int) error { return q.Hold(series * index.FoundBytes) }
	}
	found, err := r.cfg.Index.Select(ctx, in)
	over := UsageOf(ctx).addFound(found)
	if errors.Is(err, index.ErrTooManySeries) {
		return nil, limitError("selector %s: %v: see --read.max-series", SelectorName(q.Matchers), err)
	}
	if err == nil && over != nil && !q.SeriesOnly {
		return nil, fmt.Errorf("%w, at selector %s", over, SelectorName(q.Matchers))
	}
	if err == nil && !q.SeriesOnly {
		r.reads.note(r.cfg.Now(), &q, found)
	}
	return found, err
}

// LabelValues returns the values of a label of the series of q, sorted, up to q.Enough
// unless that is 0.
func (r *Reader) LabelValues(ctx context.Context, name string, q Query) ([]string, error) {
	q.SeriesOnly = true
	return r.cfg.Index.Values(ctx, name, r.indexQuery(ctx, q))
}

// LabelNames returns the label names of the series of q, sorted, up to q.Enough unless
// that is 0.
func (r *Reader) LabelNames(ctx context.Context, q Query) ([]string, error) {
	q.SeriesOnly = true
	return r.cfg.Index.Names(ctx, r.indexQuery(ctx, q))
}

func (r *Reader) indexQuery(ctx context.Context, q Query) index.Query {
	usesBuckets := q.Rollups.UsesBuckets() && r.view(ctx).HasRollups
	if q = r.withCut(ctx, q); usesBuckets || q.SeriesOnly || q.Kept {
		q.cut = r.view(ctx).Found()
	}
	start, limit := q.span()
	if usesBuckets && start < limit {
		// A window may be widened to whole buckets. A base that begins in the last one is another row of the series.
		start = max(rollup.Coarsest.Floor(start-1), q.cut, 0)
		limit = min(rollup.Coarsest.Ceil(limit-1), series.MaxTime) + 1
	}
	return index.Query{Matchers: r.storedMatchers(q.Matchers), Start: start, Limit: limit, Enough: q.Enough}
}

// newBatchReader takes a query with its cut.
func (r *Reader) newBatchReader(q Query) *batchReader {
	start, limit := q.span()
	scans := max(1, r.cfg.Store.Traits().ParallelScans)
	ahead := scans
	if q.Compute != nil {
		scans = max(scans, runtime.GOMAXPROCS(0))
	}
	return &batchReader{
		store:  r.cfg.Store,
		schema: r.cfg.Schema,
		limits: r.cfg.Limits,
		query:  q,
		start:  start,
		limit:  limit,
		target: r.batchTarget(q.Share), samples: new(atomic.Int64),
		scans:  scans,
		ahead:  ahead,
		least:  r.MinScanSeries,
		size:   firstBatch,
		widths: widths{span: firstSpan, cells: r.RowCells},
	}
}

// batchTarget returns how large a batch of one of share queries should be, in bytes.
func (r *Reader) batchTarget(share int) int {
	if share <= 1 {
		return r.BatchBytes
	}
	return max(r.BatchBytes/share, min(r.BatchBytes, minBatchBytes))
}

// inBackground runs fn in a goroutine that Close waits for, with a context that
// ends with ctx and when the Reader is closed.
func (r *Reader) inBackground(ctx context.Context, fn func(context.Context)) {
	r.background.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.closing, cancel)()
		fn(ctx)
	})
}

// metrics are those of a Reader.
type metrics struct {
	series  prometheus.Counter
	samples prometheus.Counter
	batches *prometheus.CounterVec
}

// Values of the label result.
const (
	resultRead  = "read"
	resultSplit = "split"
)

func newMetrics(reg prometheus.Registerer) metrics {
	f := metricset.New(reg)
	return metrics{
		series:  f.Counter("adapter_engine_selected_series_total", "Series that queries delivered."),
		samples: f.Counter("adapter_engine_selected_samples_total", "Samples of the series that queries delivered."),
		batches: f.Counters("adapter_engine_read_batches_total",
			"Batches of rows read, by result: read, or split because they held more than expected.", "result", resultRead, resultSplit),
	}
}
