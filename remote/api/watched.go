package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/stats"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/request"
)

// A watchedEngine logs the queries of an engine that are slow, and tells those that an operator has cancelled.
type watchedEngine struct {
	promql.QueryEngine
	log *request.SlowLog
}

func (e watchedEngine) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, ts time.Time) (promql.Query, error) {
	query, err := e.QueryEngine.NewInstantQuery(ctx, q, opts, qs, ts)
	return e.watch(ctx, query, err, request.QueryInstant)
}

func (e watchedEngine) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, qs string, start, end time.Time, interval time.Duration) (promql.Query, error) {
	query, err := e.QueryEngine.NewRangeQuery(ctx, q, opts, qs, start, end, interval)
	return e.watch(ctx, query, err, request.QueryRange)
}

func (e watchedEngine) watch(ctx context.Context, q promql.Query, err error, kind string) (promql.Query, error) {
	err = queries.Cause(ctx, err)
	noteLimit(ctx, err)
	switch {
	case errors.Is(err, queries.ErrCancelled): // while it waited: upstream's API would say that the parameter query is wrong
		return cancelledQuery{}, nil
	case err != nil:
		return nil, err
	}
	return watchedQuery{q, e.log, kind}, nil
}

// A cancelledQuery was cancelled before it began. It can be executed and closed.
type cancelledQuery struct{ promql.Query }

func (cancelledQuery) Exec(context.Context) *promql.Result {
	return &promql.Result{Err: queries.ErrCancelled}
}

func (cancelledQuery) Close() {}

type watchedQuery struct {
	promql.Query
	log  *request.SlowLog
	kind string
}

func (q watchedQuery) Exec(ctx context.Context) *promql.Result {
	var report eval.Report
	ctx, watch := q.log.Watch(eval.WithReport(ctx, &report), q.kind)
	res := q.Query.Exec(ctx)
	res.Err = queries.Cause(ctx, res.Err)
	watch.End(withCause(res.Err), func() request.SlowQuery { return q.describe(&report) })
	if res.Err == nil {
		res.Err = eval.Lend(ctx, answerBytes(res.Value), "the answer")
	}
	noteLimit(ctx, res.Err)
	return res
}

// An endedError is the error of a query that the end of its context ended. It wraps the cause, which upstream's error does not.
type endedError struct {
	error
	cause error
}

func (e endedError) Unwrap() error { return e.cause }

// withCause returns an error of upstream's engine with its cause, if that is the end of a context.
func withCause(err error) error {
	switch {
	case errors.As(err, new(promql.ErrQueryCanceled)):
		return endedError{err, context.Canceled}
	case errors.As(err, new(promql.ErrQueryTimeout)):
		return endedError{err, context.DeadlineExceeded}
	}
	return err
}

const (
	// floatBytes and bucketBytes are what a float and a bucket of a histogram take up to their answer: in the result, and four times
	// in its JSON, which grows by doubling, and is copied then.
	floatBytes  = 16 + 4*28
	bucketBytes = 16 + 4*56
)

// answerBytes returns about what a result takes until it is sent.
func answerBytes(v parser.Value) (bytes int) {
	switch v := v.(type) {
	case promql.Matrix:
		for _, s := range v {
			bytes += len(s.Floats) * floatBytes
			for _, p := range s.Histograms {
				bytes += histogramBytes(p.H)
			}
		}
	case promql.Vector:
		for _, s := range v {
			bytes += int(s.Metric.ByteSize()) + floatBytes + histogramBytes(s.H)
		}
	}
	return bytes
}

func histogramBytes(h *histogram.FloatHistogram) int {
	if h == nil {
		return 0
	}
	return 2*floatBytes + (len(h.PositiveBuckets)+len(h.NegativeBuckets))*bucketBytes
}

func (q watchedQuery) describe(report *eval.Report) request.SlowQuery {
	samples := q.Stats().Samples
	slow := request.SlowQuery{Text: q.String(), Details: []any{
		"samples", samples.TotalSamples, "peak_samples", samples.PeakSamples,
		"streamed", strings.Join(report.Streamed(), "; "), "gave_up", report.GaveUp(),
	}}
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		slow.Start, slow.End, slow.Step = s.Start.UnixMilli(), s.End.UnixMilli(), s.Interval
	}
	return slow
}

// queryStats are those of Prometheus, and what was read.
type queryStats struct {
	stats.BuiltinStats
	Storage storageStats `json:"storage"`
}

// storageStats is reader.Counts, with names as Prometheus has them.
type storageStats struct {
	Series    int64 `json:"series"`
	IndexRows int64 `json:"indexRows"`
	Rows      int64 `json:"rows"`
	Cells     int64 `json:"cells"`
	Bytes     int64 `json:"bytes"`

	Days5m        int64 `json:"rollupDays5m"`
	Days1h        int64 `json:"rollupDays1h"`
	DaysNotRolled int64 `json:"rollupDaysMissing"`
	Raw           bool  `json:"raw"`
	Widened       bool  `json:"widened"`
}

// renderStats is a v1.StatsRenderer. ctx is that of a request, see bounded.
func renderStats(ctx context.Context, s *stats.Statistics, param string) stats.QueryStats {
	if param == "" {
		return nil
	}
	rendered := &queryStats{BuiltinStats: stats.NewQueryStats(s).Builtin()}
	if usage := reader.UsageOf(ctx); usage != nil {
		rendered.Storage = storageStats(usage.Counts())
	}
	return rendered
}
