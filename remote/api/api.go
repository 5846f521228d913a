// Package api is Prometheus' HTTP API on an engine: PromQL, series, labels,
// exemplars, metadata and what clients probe of a server's status; and what the
// page of the adapter needs beside.
//
//	api.go          what is served, and with what limits
//	upstream.go     Prometheus' own API package and PromQL engine, wired
//	admin.go        deletion of samples
//	active.go       queries that run: listed, cancelled
//	changes.go      /api/v1/changes, what differs from the span before
//	watched.go      slow queries, and the statistics of a query
//	storage.go      the engine as that package wants it, errors marked
//	metadata.go     /api/v1/metadata, from the store instead of from targets
//	cardinality.go  /api/v1/status/tsdb, from the index instead of from a TSDB
//	names.go        /api/v1/metric_names, a tree of them, and a search
//	stored.go       /api/v1/status/store, what is stored
//	current.go      /api/v1/current, the current sample of every series
//	status.go       /api/v1/status/adapter, what the adapter is and does
//	usage.go        /api/v1/status/usage, what no query reads, and how near limits are
//	backfill.go     recording rules at earlier times
//	rules.go        rules, alerts, targets and Alertmanagers, of which there are none
//	respond.go      the envelope of answers
//	limited.go      which limit has refused a request
//	metrics.go      counters of requests
package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/expr"
)

// Config says what an API is made of. Engine and Now are required; a zero limit
// takes its default.
type Config struct {
	// Engine answers: an *engine.Engine.
	Engine backend
	// Now is the clock.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer
	// Gatherer has the metrics for /api/v1/status/adapter. It may be nil.
	Gatherer prometheus.Gatherer

	// Timeout is how long a query may take.
	Timeout time.Duration // 2m
	// MaxSamples is how many samples a query may hold in memory at once.
	MaxSamples int // 50,000,000
	// MaxMemory is how many bytes a query may hold, and MaxTotalMemory how many all of them
	// together: samples that are kept, and results.
	MaxMemory      int // 1 GiB
	MaxTotalMemory int // 4 GiB
	// MaxConcurrent is how many queries run at once; others wait.
	MaxConcurrent int // 20
	// Lookback is how old the last sample of a series may be at the time that a
	// query asks for.
	Lookback time.Duration // 5m
	// EvaluationInterval is the step of a subquery that names none, in whole
	// milliseconds: what Prometheus takes from its configuration.
	EvaluationInterval time.Duration // 1m
	// Results caches results of range queries. It may be nil. Whatever writes to the store calls
	// its method Written.
	Results *resultcache.Cache
	// Confirm is that of resultcache.Config. It may be nil.
	Confirm func(ctx context.Context) bool
	// Rules returns the recording and alerting rules of the tenant of a context. It may be nil, if there are none.
	Rules func(ctx context.Context) v1.RulesRetriever
	// Alertmanagers returns the Alertmanagers that get the alerts, or nil if there are none. It may be nil itself.
	Alertmanagers func() v1.AlertmanagerRetriever
	// Cut is that of the engine. Results that read what is before it are not cached. It may be
	// nil.
	Cut func(now time.Time) int64
	// LimitsUsed returns which part of its limits the tenant of a context has used, by their names. It may be nil.
	LimitsUsed func(ctx context.Context) map[string]float64
	// Missing returns warnings about samples up to a time, in milliseconds, that a read may lack because other adapters have not stored
	// them yet. It may be nil.
	Missing func(maxt int64) []error
	// Admin deletes samples. Nil turns the requests for that off.
	Admin Admin
	// Backfill records rules of the tenant of a context at earlier times, and returns what it found. It may be nil.
	Backfill func(ctx context.Context, asked Backfill) (any, error)
	// Snapshots copies the store to directories in snapshots in DataDir. It may be nil, and is not used without Admin.
	Snapshots Snapshots
	// DataDir is the directory of the embedded store.
	DataDir string
	// Features are the names of parts of PromQL that are off by default, see CheckFeatures.
	Features []string
	// SlowLog logs slow queries. It may be nil.
	SlowLog *request.SlowLog
	// Active are the queries that run. Nil are those of this API alone.
	Active *queries.Active
	// ActiveQueries is the directory of the log of active queries, which tells
	// after a crash what ran. Empty is none.
	ActiveQueries string

	// Flags are the values of the flags, by name, for /api/v1/status/flags.
	Flags map[string]string
	// Retention is what /api/v1/status/runtimeinfo says of it.
	Retention string
	// Resolutions returns what is kept when the clock says now. It may be nil.
	Resolutions func(now time.Time) []Resolution
	// Status is what /api/v1/status/adapter says.
	Status Status
}

// WithDefaults returns cfg with a value for each limit that is zero.
func (cfg Config) WithDefaults() Config {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Minute
	}
	if cfg.MaxSamples == 0 {
		cfg.MaxSamples = 50_000_000
	}
	if cfg.MaxMemory == 0 {
		cfg.MaxMemory = 1 << 30
	}
	if cfg.MaxTotalMemory == 0 {
		cfg.MaxTotalMemory = 4 << 30
	}
	if cfg.MaxConcurrent == 0 {
		cfg.MaxConcurrent = 20
	}
	if cfg.Lookback == 0 {
		cfg.Lookback = 5 * time.Minute
	}
	if cfg.EvaluationInterval == 0 {
		cfg.EvaluationInterval = time.Minute
	}
	return cfg
}

// backend is what an API asks of an engine.
type backend interface {
	storage.Queryable
	storage.ChunkQueryable
	storage.ExemplarQueryable
	Metadata(ctx context.Context, family string, limit int) ([]ingest.Metadata, error)
	Cardinality(ctx context.Context, q reader.CountQuery) (*index.Cardinality, *index.Comparison, error)
	MetricNames(ctx context.Context, q index.MetricQuery) (*index.Metrics, map[string]ingest.Metadata, error)
	Extent(ctx context.Context, most int) (index.Extent, error)
	Unread(ctx context.Context, since time.Time, metrics, labels []string) (unreadMetrics, unreadLabels []string, from int64, err error)
	Inventory(ctx context.Context, selectors [][]*labels.Matcher, limit int, fn func(current.Sample) error) (current.Inventory, error)
}

// API serves Prometheus' HTTP API. It is safe for concurrent use.
type API struct {
	cfg     Config
	queries *eval.Engine
	// cached is in front of queries. It is nil if results are not cached.
	cached *resultcache.Engine
	// evaluated is queries, or cached, with slow queries logged, and store what it reads.
	evaluated promql.QueryEngine
	store     storage.Queryable
	parser    parser.Parser
	close     func() error
	mux       *http.ServeMux
	started   time.Time

	// passes bounds the passes over CURRENT, and the counts of series of selectors, that run at
	// once.
	passes *scope.Semaphore
	// memory bounds what queries hold.
	memory *eval.Memory
}

// New returns an API. Its metrics, and those of Prometheus' query engine, are
// registered with cfg.Registerer, where they must not be registered yet. The
// caller closes it.
func New(cfg Config) (*API, error) {
	cfg = cfg.WithDefaults()
	if cfg.Active == nil {
		cfg.Active = queries.NewActive(queries.Config{Now: cfg.Now, Registerer: cfg.Registerer})
	}
	if err := CheckFeatures(cfg.Features); err != nil {
		return nil, err
	}
	_, options := cfg.promqlOptions()
	a := &API{
		cfg:     cfg,
		parser:  expr.NewParser(options),
		mux:     http.NewServeMux(),
		started: cfg.Now(),
		passes:  scope.NewSemaphore(int64(cfg.MaxConcurrent)),
	}
	admin := &admin{Admin: cfg.Admin, snapshots: cfg.Snapshots, one: make(chan struct{}, 1)}
	upstream, err := a.newUpstream(admin)
	if err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Registerer)
	for _, pattern := range upstreamPatterns() {
		handler := withCacheControl(withMaxResolution(withLimit(upstream)))
		if strings.HasSuffix(pattern, "/format_query") || strings.HasSuffix(pattern, "/parse_query") {
			handler = withShownLimit(handler)
		}
		if kind := activeKind(pattern); kind != "" {
			handler = a.withActive(kind, handler)
		}
		a.mux.Handle(pattern, a.bounded(m.instrument(pattern, withForm(handler))))
	}
	for _, pattern := range changesPatterns() {
		handler := withCacheControl(withMaxResolution(a.withActive(request.QueryRange, http.HandlerFunc(a.serveChanges))))
		a.mux.Handle(pattern, a.bounded(m.instrument(pattern, request.Compressed(withForm(handler)))))
	}
	for _, pattern := range adminPatterns() {
		handler := m.instrument(pattern, withForm(admin.withContext(upstream)))
		if !strings.HasSuffix(pattern, snapshotPath) { // that takes as long as the copy of a disk
			handler = a.bounded(handler)
		}
		a.mux.Handle(pattern, handler)
	}
	all := own()
	all[cancelPattern], all[backfillPattern] = (*API).serveCancel, (*API).serveBackfill
	for pattern, serve := range all {
		handler := func(w http.ResponseWriter, r *http.Request) { serve(a, w, r) }
		a.mux.Handle(pattern, a.bounded(m.instrument(pattern, request.Compressed(http.HandlerFunc(handler)))))
	}
	return a, nil
}

// own returns what is not upstream's, by pattern.
func own() map[string]func(*API, http.ResponseWriter, *http.Request) {
	return map[string]func(*API, http.ResponseWriter, *http.Request){
		"GET /api/v1/metadata":              (*API).serveMetadata,
		"GET /api/v1/current":               (*API).serveCurrent,
		"GET /api/v1/status/tsdb":           (*API).serveCardinality,
		"GET /api/v1/status/adapter":        (*API).serveStatus,
		"GET /api/v1/status/usage":          (*API).serveUsage,
		"GET /api/v1/status/store":          (*API).serveStore,
		"GET /api/v1/status/active_queries": (*API).serveActive,
		"GET /api/v1/metric_names":          (*API).serveMetricNames,
		"GET /api/v1/status/walreplay":      (*API).serveWALReplay,
	}
}

// Patterns returns what API serves, but for AdminPatterns, as patterns of http.ServeMux.
func Patterns() []string {
	return slices.AppendSeq(append(upstreamPatterns(), changesPatterns()...), maps.Keys(own()))
}

// AdminPatterns returns the requests of API that change what is stored, or end what others do.
func AdminPatterns() []string { return append(adminPatterns(), cancelPattern, backfillPattern) }

// Memory bounds what the queries of a hold, and others that use it.
func (a *API) Memory() *eval.Memory { return a.memory }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// Close ends the active queries and the log of them. No other call may be
// running or follow.
func (a *API) Close() error { return a.close() }

// bounded gives requests the timeout of a query, and clients that read slowly
// not much more. What is read for a request is counted.
func (a *API) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout)
		defer cancel()
		request.LimitBody(ctx, w, r)
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(a.cfg.Timeout + request.AnswerGrace)) // a writer without, as in a test, has no slow clients
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()                      // also after a panic: the connection may live on
		usage := &reader.Usage{}
		ctx, end := a.memory.With(ctx) // of the answer
		defer end()
		ctx = timeline.WithRequest(reader.WithUsage(ctx, usage), a.cfg.Now())
		next.ServeHTTP(retryWriter{w, usage}, r.WithContext(ctx))
	})
}

// withForm reads the body of a request, which upstream's handlers take for empty if it does not come.
func withForm(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := r.ParseForm()
		if err == nil {
			err = r.ParseMultipartForm(maxFormMemory)
		}
		if r.MultipartForm != nil { // the server removes only the files of its own copy of the request
			defer func() { _ = r.MultipartForm.RemoveAll() }()
		}
		switch {
		case err == nil, errors.Is(err, http.ErrNotMultipart):
			next.ServeHTTP(w, r)
		case errors.Is(err, os.ErrDeadlineExceeded):
			respond(w, nil, fmt.Errorf("read request body: %w", err))
		default:
			write(w, http.StatusBadRequest, response{Status: "error", ErrorType: "bad_data", Error: fmt.Sprintf("parse form: %v", err)})
		}
	})
}

// maxFormMemory is how much of a form of several parts is kept in memory.
const maxFormMemory = 1 << 20

// A retryWriter says with each 503 when to come back, and names the resolutions that were read.
type retryWriter struct {
	http.ResponseWriter
	usage *reader.Usage
}

// retryAfter is in seconds.
const retryAfter = "5"

// resolutionHeader is the header of an answer that names what was read for it, such as "raw,1h".
const resolutionHeader = "X-Promtable-Resolution"

func (w retryWriter) WriteHeader(status int) {
	if read := w.usage.Resolutions(); read != "" {
		w.Header().Set(resolutionHeader, read)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w retryWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
