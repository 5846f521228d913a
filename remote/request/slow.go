package request

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/engine/reader"
)

// The kinds of queries, as they stand in the log and in metrics.
const (
	QueryInstant = "instant"
	QueryRange   = "range"
	QueryRead    = "read"
)

// DefaultSlowerThan is a SlowerThan that the queries of a dashboard should not reach.
const DefaultSlowerThan = 10 * time.Second

// SlowConfig is what a SlowLog is made of. Logger and Now are required.
type SlowConfig struct {
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Now is the clock.
	Now func() time.Time
	// SlowerThan is how long a query may take without being logged. 0 logs none.
	SlowerThan time.Duration
}

// A SlowLog logs queries that take long, a line for each. A nil SlowLog logs none. It is safe
// for concurrent use.
type SlowLog struct {
	cfg     SlowConfig
	queries *prometheus.CounterVec
}

// NewSlowLog returns a SlowLog. Its metric is registered with cfg.Registerer.
func NewSlowLog(cfg SlowConfig) *SlowLog {
	return &SlowLog{cfg: cfg, queries: metricset.New(cfg.Registerer).Counters("adapter_slow_queries_total",
		"Queries that took longer than --query.log-slower-than, by kind: instant, range, or read for a remote read.", "kind", QueryInstant, QueryRange, QueryRead)}
}

// A Watch is over one query. A nil Watch does nothing.
type Watch struct {
	log     *SlowLog
	kind    string
	started time.Time
	usage   *reader.Usage
}

// Watch begins a query. The query runs with the context that is returned, which counts what
// it reads.
func (l *SlowLog) Watch(ctx context.Context, kind string) (context.Context, *Watch) {
	if l == nil || l.cfg.SlowerThan <= 0 {
		return ctx, nil
	}
	usage := reader.UsageOf(ctx)
	if usage == nil {
		usage = &reader.Usage{}
		ctx = reader.WithUsage(ctx, usage)
	}
	return ctx, &Watch{log: l, kind: kind, started: l.cfg.Now(), usage: usage}
}

// A SlowQuery says what was asked for.
type SlowQuery struct {
	// Text is the expression, or the selectors.
	Text string
	// Start and End are in milliseconds, inclusive.
	Start, End int64
	// Step is 0 but for range queries.
	Step time.Duration
	// Details are more pairs for the log.
	Details []any
}

// End ends the query with its error, or nil. If it was slow, it is logged as describe says.
func (w *Watch) End(err error, describe func() SlowQuery) {
	if w == nil {
		return
	}
	took := w.log.cfg.Now().Sub(w.started)
	if took < w.log.cfg.SlowerThan {
		return
	}
	w.log.queries.WithLabelValues(w.kind).Inc()
	q, read := describe(), w.usage.Counts()
	pairs := []any{
		"msg", "slow query", "kind", w.kind, "query", AbbreviateQuery(q.Text),
		"start", timeText(q.Start), "end", timeText(q.End), "step", q.Step,
		"seconds", strconv.FormatFloat(took.Seconds(), 'f', 3, 64), "status", queryStatus(err),
		"series", read.Series, "index_rows", read.IndexRows, "rows", read.Rows, "cells", read.Cells, "bytes", read.Bytes,
	}
	pairs = append(pairs, q.Details...)
	if err != nil {
		pairs = append(pairs, "err", err)
	}
	level.Warn(w.log.cfg.Logger).Log(pairs...)
}

// AbbreviateQuery cuts a query, or another text of a client, for the log.
func AbbreviateQuery(text string) string {
	const limit = 4096
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

func timeText(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// queryStatus says how a query ended.
func queryStatus(err error) string {
	switch {
	case err == nil:
		return "success"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "error"
}
