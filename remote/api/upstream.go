package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"github.com/prometheus/common/version"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	registries "github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/notifications"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	sloggokit "github.com/tjhop/slog-gokit"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/series/expr"
	"github.com/promtable/promtable/series/rollup"
)

// upstreamPatterns are the requests that Prometheus' own API answers here. The
// others are for a TSDB, or the adapter serves them itself, like remote write and
// remote read.
func upstreamPatterns() []string {
	var patterns []string
	for _, path := range []string{"query", "query_range", "query_exemplars", "format_query", "parse_query", "labels", "series"} {
		patterns = append(patterns, "GET /api/v1/"+path, "POST /api/v1/"+path)
	}
	for _, path := range []string{"label/{name}/values", "status/config", "status/flags", "status/runtimeinfo", "status/buildinfo", "features", "notifications", "notifications/live",
		"rules", "alerts", "targets", "targets/metadata", "scrape_pools", "alertmanagers"} {
		patterns = append(patterns, "GET /api/v1/"+path)
	}
	return patterns
}

// newUpstream wires Prometheus' API over the engine.
func (a *API) newUpstream(admin *admin) (http.Handler, error) {
	logger := slog.New(sloggokit.NewGoKitHandler(a.cfg.Logger, slog.LevelInfo))
	tracker, err := a.newTracker(logger)
	if err != nil {
		return nil, err
	}
	opts, _ := a.cfg.promqlOptions()
	registry := registries.NewRegistry()
	opts.FeatureRegistry = registry
	opts.Logger = logger
	opts.Reg = a.cfg.Registerer
	opts.MaxSamples = a.cfg.MaxSamples
	opts.Timeout = a.cfg.Timeout
	opts.ActiveQueryTracker = tracker
	opts.LookbackDelta = a.cfg.Lookback
	opts.EnableAtModifier = true
	opts.EnableNegativeOffset = true
	opts.Parser = a.parser
	// Without it the engine panics at a subquery that names no step.
	opts.NoStepSubqueryIntervalFn = func(int64) int64 { return a.cfg.EvaluationInterval.Milliseconds() }
	memory := eval.NewMemory(int64(a.cfg.MaxMemory), int64(a.cfg.MaxTotalMemory))
	observeMemory(a.cfg.Registerer, memory)
	a.memory = memory
	a.queries = eval.New(opts, memory)
	observeCores(a.cfg.Registerer, a.queries.Cores())
	a.close = a.queries.Close
	var evaluated promql.QueryEngine = a.queries
	if a.cfg.Results != nil {
		a.cached = a.cfg.Results.Engine(resultcache.Config{
			Engine: a.queries, Options: opts, Memory: memory, Now: a.cfg.Now, Cut: a.cfg.Cut, Confirm: a.cfg.Confirm,
			Sources: func(ctx context.Context) uint8 { return uint8(reader.UsageOf(ctx).Origin()) },
			Reuse:   func(ctx context.Context, from uint8) { reader.UsageOf(ctx).AddCached(rollup.Origin(from)) },
		})
		evaluated = a.cached
	}
	// NewAPI renders openapi.yaml, which is not served: without paths that takes
	// half the time and memory.
	noPaths := v1.OpenAPIOptions{IncludePaths: []string{"none"}}
	store := markedStorage{a.cfg.Engine, a.cfg.Missing}
	a.evaluated, a.store = watchedEngine{evaluated, a.cfg.SlowLog}, store
	api := v1.NewAPI(
		a.evaluated, store, nil, store,
		func(context.Context) v1.ScrapePoolsRetriever { return nothing{} },
		func(context.Context) v1.TargetRetriever { return nothing{} },
		a.alertmanagers,
		a.configuration,
		a.cfg.Flags,
		v1.GlobalURLOptions{},
		func(next http.HandlerFunc) http.HandlerFunc { return next },
		admin, a.cfg.DataDir, a.cfg.Admin != nil, false, 0,
		logger,
		a.rules,
		0, 0, 0, // of its remote read, which is not served
		false,
		regexp.MustCompile(`^$`), // no other origins
		func() (v1.RuntimeInfo, error) { return a.runtimeInfo() },
		buildInfo(),
		func() []notifications.Notification { return []notifications.Notification{} },
		func() (<-chan notifications.Notification, func(), bool) { return nil, nil, false },
		prometheus.NewRegistry(), nil,
		renderStats,
		false, nil, // no remote write
		false, false, false, // no OTLP
		a.cfg.Lookback, false, false,
		statusOf,
		registry,
		noPaths,
		a.parser,
		false, 0, // no cost of queries: /api/v1/explain has it
	)
	router := route.New().WithPrefix("/api/v1")
	api.Register(router)
	return router, nil
}

// alertmanagers returns the Alertmanagers that get the alerts, which are the same for all tenants.
func (a *API) alertmanagers(context.Context) v1.AlertmanagerRetriever {
	if a.cfg.Alertmanagers != nil {
		if found := a.cfg.Alertmanagers(); found != nil {
			return found
		}
	}
	return nothing{}
}

// rules returns the rules of the tenant of a context.
func (a *API) rules(ctx context.Context) v1.RulesRetriever {
	if a.cfg.Rules == nil {
		return NoRules{}
	}
	return a.cfg.Rules(ctx)
}

// Evaluator returns what evaluates PromQL, without cached results, what it reads, whose errors StoreFailed knows, and its parser.
func (a *API) Evaluator() (promql.QueryEngine, storage.Queryable, parser.Parser) {
	return a.queries, markedStorage{a.cfg.Engine, a.cfg.Missing}, a.parser
}

// StoreFailed says whether an error of a query of Evaluator is the store's, or the end of the query, and may end: it is not the expression's.
func StoreFailed(err error) bool {
	var failed *storeError
	var timedOut promql.ErrQueryTimeout
	var canceled promql.ErrQueryCanceled
	var stored promql.ErrStorage
	return errors.As(err, &failed) || errors.As(err, &timedOut) || errors.As(err, &canceled) || errors.As(err, &stored) ||
		errors.Is(err, eval.ErrBusy) || errors.Is(err, queries.ErrCancelled) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// configuration is what /api/v1/status/config says: Prometheus' defaults, with the intervals of the adapter. Without a
// scrape of its own metrics the interval stays that of Prometheus.
func (a *API) configuration() config.Config {
	c := config.DefaultConfig
	if seconds := a.cfg.Status.SelfScrape.IntervalSeconds; seconds > 0 {
		c.GlobalConfig.ScrapeInterval = model.Duration(seconds * float64(time.Second))
		c.GlobalConfig.ScrapeTimeout = min(c.GlobalConfig.ScrapeTimeout, c.GlobalConfig.ScrapeInterval)
	}
	c.GlobalConfig.EvaluationInterval = model.Duration(a.cfg.EvaluationInterval)
	return c
}

// Explain returns how an expression is evaluated from start to end, each step, or at start if
// step is 0.
func (a *API) Explain(ctx context.Context, query string, start, end time.Time, step time.Duration) (*eval.Node, error) {
	return a.queries.Explain(ctx, query, start, end, step)
}

// Coverage returns how many steps of a range query would be answered from the cache of results, or why none is.
func (a *API) Coverage(ctx context.Context, query string, start, end time.Time, step time.Duration) resultcache.Coverage {
	switch {
	case a.cached == nil:
		return resultcache.Coverage{Why: "this adapter keeps no results"}
	case step == 0:
		return resultcache.Coverage{Why: "it is an instant query"}
	}
	return a.cached.Coverage(ctx, query, start, end, step)
}

// withCacheControl evaluates queries whose client asks for no cached answer, by the header
// Cache-Control: no-cache or no-store.
func withCacheControl(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, directive := range strings.Split(strings.Join(r.Header.Values("Cache-Control"), ","), ",") {
			switch strings.ToLower(strings.TrimSpace(directive)) {
			case "no-cache", "no-store":
				r = r.WithContext(resultcache.WithoutCache(r.Context()))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// withShownLimit refuses expressions that would take too long to format, or to write as a tree.
func withShownLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := expr.CheckShown(r.FormValue("query")); err != nil {
			badParameter(w, "query", err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newTracker bounds the active queries, and logs them if Config.ActiveQueries is set.
func (a *API) newTracker(logger *slog.Logger) (promql.QueryTracker, error) {
	t := &tracker{slots: scope.NewSemaphore(int64(a.cfg.MaxConcurrent)), running: make(map[int]entry)}
	if a.cfg.ActiveQueries != "" {
		var err error
		if t.file, err = promql.NewActiveQueryTracker(a.cfg.ActiveQueries, a.cfg.MaxConcurrent, logger); err != nil {
			return nil, fmt.Errorf("log of active queries: %w", err)
		}
	}
	return t, nil
}

// A tracker is a promql.QueryTracker that lets queries in with turns by tenant.
type tracker struct {
	slots *scope.Semaphore
	// file has the log of active queries, or is nil.
	file    *promql.ActiveQueryTracker
	mu      sync.Mutex
	last    int
	running map[int]entry
}

// An entry is a query that runs: its context, and its number in the file.
type entry struct {
	ctx    context.Context
	number int
}

// GetMaxConcurrent implements promql.QueryTracker. The engine asks for it only to show it as a metric.
func (t *tracker) GetMaxConcurrent() int { return int(t.slots.Total()) }

// Insert implements promql.QueryTracker.
func (t *tracker) Insert(ctx context.Context, query string) (int, error) {
	if err := t.slots.Acquire(ctx, 1); err != nil {
		return 0, err
	}
	e := entry{ctx: ctx}
	if t.file != nil { // which has as many places as there are slots, and never waits
		var err error
		if e.number, err = t.file.Insert(context.WithoutCancel(ctx), query); err != nil {
			t.slots.Release(ctx, 1)
			return 0, err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.running[t.last] = e
	return t.last, nil
}

// Delete implements promql.QueryTracker.
func (t *tracker) Delete(index int) {
	t.mu.Lock()
	e := t.running[index]
	delete(t.running, index)
	t.mu.Unlock()
	if t.file != nil {
		t.file.Delete(e.number)
	}
	t.slots.Release(e.ctx, 1)
}

// Close implements promql.QueryTracker.
func (t *tracker) Close() error { return t.file.Close() }

// statusOf overrides the status of errors of the engine, which upstream's API
// cannot tell from others. The kind of the error is of a type that upstream does
// not export.
func statusOf[Kind ~int](_ Kind, err error) (status int, override bool) {
	var failed *storeError
	switch {
	case errors.Is(err, eval.ErrMemory), errors.Is(err, queries.ErrCancelled):
		return http.StatusUnprocessableEntity, true
	case errors.Is(err, eval.ErrBusy):
		return http.StatusServiceUnavailable, true
	case errors.Is(err, reader.ErrLimit), errors.As(err, &failed):
		return request.Status(context.Background(), request.API, err), true
	}
	return 0, false
}

// runtimeInfo is what /api/v1/status/runtimeinfo says.
func (a *API) runtimeInfo() (v1.RuntimeInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		return v1.RuntimeInfo{}, err
	}
	return v1.RuntimeInfo{
		StartTime:           a.started,
		Hostname:            host,
		ServerTime:          a.cfg.Now(),
		ReloadConfigSuccess: true,
		LastConfigTime:      a.started,
		GoroutineCount:      runtime.NumGoroutine(),
		GOMAXPROCS:          runtime.GOMAXPROCS(0),
		GOMEMLIMIT:          debug.SetMemoryLimit(-1),
		GOGC:                os.Getenv("GOGC"),
		GODEBUG:             os.Getenv("GODEBUG"),
		StorageRetention:    a.cfg.Retention,
	}, nil
}

// buildInfo is what /api/v1/status/buildinfo says. The version is that of the
// Prometheus whose API this is: Grafana decides by it which requests it may send.
func buildInfo() *v1.PrometheusVersion {
	return &v1.PrometheusVersion{
		Version:   prometheusVersion(),
		Revision:  version.GetRevision(),
		Branch:    version.Branch,
		BuildUser: "promtable",
		BuildDate: version.BuildDate,
		GoVersion: runtime.Version(),
	}
}

// prometheusVersion returns the version of the Prometheus that is built in. As
// a module v0.316.0 is what is released as 3.16.0.
func prometheusVersion() string {
	const fallback = "3.16.0"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fallback
	}
	for _, module := range info.Deps {
		if module.Path != "github.com/prometheus/prometheus" {
			continue
		}
		var minor, patch int
		if _, err := fmt.Sscanf(strings.TrimPrefix(module.Version, "v0."), "%d.%d", &minor, &patch); err == nil && minor >= 300 {
			return fmt.Sprintf("%d.%d.%d", minor/100, minor%100, patch)
		}
	}
	return fallback
}
