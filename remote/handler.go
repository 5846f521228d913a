// Package remote wires the handlers of the protocols to their paths, with the
// limits of one Config.
//
//	wire      requests from bytes
//	request   what every request goes through: limits, errors, metrics
//	write     remote write and OTLP
//	read      remote read
//	federate  the current samples as text
//	history   samples of earlier times, from other systems
//	queries   the queries that run, and which are blocked
//	explain   what a selector or an expression reads, as JSON
//	engine    samples stored and found; no HTTP
//	api       Prometheus' HTTP API
//	ui        the page
package remote

import (
	"context"
	"net/http"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/explain"
	"github.com/promtable/promtable/remote/federate"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/read"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/remote/write"
)

// Config is what a Handler is made of. Engine and Now are required; a zero
// limit takes its default.
type Config struct {
	// Engine finds samples: an *engine.Engine, which also stores them. In a store with tenants it finds those of the tenants of a
	// context.
	Engine backend
	// Writer, if set, returns what stores the samples of a request, by its context.
	Writer func(ctx context.Context) (write.Engine, error)
	// OTLP is how OTLP metrics become series.
	OTLP write.OTLPConfig
	// Now is the clock.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer may be nil.
	Registerer prometheus.Registerer

	// MaxBodyBytes bounds the body of a request, as sent and as decompressed.
	MaxBodyBytes int // 32 MiB
	// WriteTimeout is how long a write may take, from its header to its answer. A
	// sender waits 30 s.
	WriteTimeout time.Duration // 25s
	// MaxConcurrentWrites is how many writes may run at once; others wait.
	MaxConcurrentWrites int // 64
	// MaxWriteBytes bounds the bytes of all writes that run, as decompressed; others
	// wait. As many bytes again may be arriving, as sent. A write larger than this
	// runs alone. In memory a write takes a small multiple of its bytes, and about
	// fourteen times as much in the worst case, samples without content.
	MaxWriteBytes int // 128 MiB

	// ReadTimeout is how long a read may take, answer included.
	ReadTimeout time.Duration // 2m
	// MaxConcurrentReads is how many reads, federations and explanations may run
	// at once; others wait, for half of ReadTimeout and for no more than 30 s. A
	// client with a timeout of a minute is then told when to try again.
	MaxConcurrentReads int // 20
	// MaxQueries is how many queries a remote read may hold, and how many match[]
	// a federation or an explanation. Each query keeps a batch of rows in memory.
	MaxQueries int // 100
	// MaxSamples is how many samples an answer in one block may hold, over all
	// of its queries.
	MaxSamples int // 50,000,000
	// MaxFrameBytes is how large a frame of a streamed answer may be, which holds
	// one whole series. It is the default of Prometheus' chunked_read_limit.
	MaxFrameBytes int // 50,000,000
	// SlowLog logs slow reads. It may be nil.
	SlowLog *request.SlowLog
	// Memory counts what remote reads hold, beside PromQL. It may be nil.
	Memory *eval.Memory
	// Active are the queries that run. It may be nil.
	Active *queries.Active
	// Queries explains expressions. It may be nil.
	Queries explain.Queries
	// NodeSeconds is that of explain.Config. It may be nil.
	NodeSeconds func(rows, indexRows, bytes int64) float64
	// History returns what takes samples of earlier times for a request, by its context. Nil turns that off.
	History func(ctx context.Context) (*history.Store, error)
	// Transfers has the imports of others. Nil is none yet.
	Transfers *history.Transfers
	// Rows has the rows that other adapters copy. Nil turns that off.
	Rows history.RowsEngine
	// CurrentLookback is how old the current sample of a series may be to be
	// federated.
	CurrentLookback time.Duration // 5m
}

// WithDefaults returns cfg with a value for each limit that is zero.
func (cfg Config) WithDefaults() Config {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Transfers == nil {
		cfg.Transfers = history.NewTransfers(cfg.Now)
	}
	setDefault(&cfg.MaxBodyBytes, 32<<20)
	setDefault(&cfg.WriteTimeout, 25*time.Second)
	setDefault(&cfg.MaxConcurrentWrites, 64)
	setDefault(&cfg.MaxWriteBytes, 128<<20)
	setDefault(&cfg.ReadTimeout, 2*time.Minute)
	setDefault(&cfg.MaxConcurrentReads, 20)
	setDefault(&cfg.MaxQueries, 100)
	setDefault(&cfg.MaxSamples, 50_000_000)
	setDefault(&cfg.MaxFrameBytes, 50_000_000)
	setDefault(&cfg.CurrentLookback, 5*time.Minute)
	cfg.OTLP = cfg.OTLP.WithDefaults()
	return cfg
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// backend is what a Handler asks of an engine.
type backend interface {
	read.Engine
	federate.Engine
	explain.Engine
}

// Handler serves
//
//	POST      /api/v1/write, /write    remote write 1.0 and 2.0
//	POST      /api/v1/otlp/v1/metrics  OTLP metrics
//	POST      /api/v1/read, /read      remote read
//	POST      /api/v1/read/rows        rows, for another adapter
//	GET       /federate                the current samples
//	GET POST  /api/v1/explain          what a selector or an expression reads
//	GET PUT POST  /api/v1/admin/import  history, if Config.History is set
//	GET           /api/v1/status/transfers      how far imports, copies and heals are
//	PUT           /api/v1/admin/transfers       takes how far one is, if Config.History is set
//	DELETE        /api/v1/admin/transfers/{id}  stops one
//
// and nothing else. It is safe for concurrent use.
type Handler struct {
	mux    *http.ServeMux
	now    func() time.Time
	writes *write.Handler
}

// Close ends what the handlers do beside requests. No request may be running.
func (h *Handler) Close() error { return h.writes.Close() }

// WritePatterns returns what a Handler serves to senders, as patterns of http.ServeMux.
func WritePatterns() []string {
	return []string{"POST /api/v1/write", "POST /write", "POST /api/v1/otlp/v1/metrics"}
}

// ReadPatterns returns what a Handler serves to readers of samples.
func ReadPatterns() []string {
	return []string{"POST /api/v1/read", "POST /read", "POST " + history.RowsPath, "GET /federate"}
}

// QueryPatterns returns what a Handler serves beside to clients of Prometheus' HTTP API.
func QueryPatterns() []string {
	return []string{"GET " + explainPath, "POST " + explainPath, "GET " + history.TransferListPath}
}

// AdminPatterns returns what a Handler serves to operators, if Config.History is set.
func AdminPatterns() []string {
	return []string{"GET " + history.Path, "PUT " + history.Path, "POST " + history.Path}
}

// TransferPatterns returns what a Handler serves beside, if Config.History is set: how far these are.
func TransferPatterns() []string {
	return []string{"PUT " + history.TransfersPath, "DELETE " + history.TransfersPath + "/{id}"}
}

const explainPath = "/api/v1/explain"

// maxReadWait is how long a read waits for a slot.
const maxReadWait = 30 * time.Second

// New returns a Handler. Its metrics are registered with cfg.Registerer, where
// they must not be registered yet.
func New(cfg Config) *Handler {
	cfg = cfg.WithDefaults()
	e := request.NewResponder(cfg.Logger, cfg.Now)
	m := request.NewMetrics(cfg.Registerer)
	m.SetLimit("write", cfg.MaxConcurrentWrites)
	m.SetLimit("read", cfg.MaxConcurrentReads)
	reads := request.NewGate(cfg.MaxConcurrentReads, min(cfg.ReadTimeout/2, maxReadWait))

	if cfg.Writer == nil {
		cfg.Writer = func(context.Context) (write.Engine, error) { return cfg.Engine.(write.Engine), nil }
	}
	writes := write.New(write.Config{
		Engine: cfg.Writer, Errors: e, Registerer: cfg.Registerer,
		MaxBodyBytes: cfg.MaxBodyBytes, Timeout: cfg.WriteTimeout,
		MaxConcurrent: cfg.MaxConcurrentWrites, MaxBytes: cfg.MaxWriteBytes,
		OTLP: cfg.OTLP,
	})
	remoteWrite := m.Instrument("write", writes, http.MethodPost)
	remoteRead := m.Instrument("read", read.New(read.Config{
		Engine: cfg.Engine, Errors: e, Gate: reads, Registerer: cfg.Registerer, SlowLog: cfg.SlowLog, Memory: cfg.Memory, Active: cfg.Active,
		MaxBodyBytes: cfg.MaxBodyBytes, Timeout: cfg.ReadTimeout,
		MaxQueries: cfg.MaxQueries, MaxSamples: cfg.MaxSamples, MaxFrameBytes: cfg.MaxFrameBytes,
	}), http.MethodPost)
	federation := federate.New(federate.Config{
		Engine: cfg.Engine, Errors: e, Gate: reads, Now: cfg.Now,
		Timeout: cfg.ReadTimeout, MaxSelectors: cfg.MaxQueries, Lookback: cfg.CurrentLookback,
	})
	explanation := explain.New(explain.Config{
		Engine: cfg.Engine, Errors: e, Gate: reads, Now: cfg.Now,
		Queries: cfg.Queries, NodeSeconds: cfg.NodeSeconds,
		Timeout: cfg.ReadTimeout, MaxSelectors: cfg.MaxQueries,
	})

	h := &Handler{mux: http.NewServeMux(), now: cfg.Now, writes: writes}
	h.mux.Handle("/api/v1/write", remoteWrite)
	h.mux.Handle("/write", remoteWrite)
	h.mux.Handle("/api/v1/otlp/v1/metrics", m.Instrument("otlp", write.NewOTLP(writes), http.MethodPost))
	h.mux.Handle("/api/v1/read", remoteRead)
	h.mux.Handle("/read", remoteRead)
	if cfg.Rows != nil {
		h.mux.Handle(history.RowsPath, m.Instrument("rows", history.NewRowsHandler(cfg.Rows, e, reads), http.MethodPost))
	}
	h.mux.Handle("/federate", m.Instrument("federate", federation, http.MethodGet))
	h.mux.Handle(explainPath, m.Instrument("explain", explanation, http.MethodGet, http.MethodPost))
	transfers := history.NewTransfersHandler(cfg.Transfers, e)
	h.mux.Handle(history.TransferListPath, m.Instrument("transfers", transfers, http.MethodGet))
	if cfg.History != nil {
		h.mux.Handle(history.Path, m.Instrument("import", history.NewHandler(cfg.History, e), http.MethodGet, http.MethodPut, http.MethodPost))
		h.mux.Handle(history.TransfersPath, m.Instrument("report_transfer", transfers, http.MethodPut))
		h.mux.Handle(history.TransfersPath+"/{id}", m.Instrument("stop_transfer", transfers, http.MethodDelete))
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mux.ServeHTTP(w, r.WithContext(timeline.WithRequest(r.Context(), h.now())))
}
