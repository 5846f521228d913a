// Package remote speaks HTTP: it takes samples by Prometheus remote write, gives
// them back by remote read, and shows the newest of them for federation. It
// decodes, validates and encodes; what is stored where is for package engine.
//
//	write.go      remote write: negotiate, decode, store, answer
//	writev1.go    the bytes of a 1.0 request to series
//	writev2.go    the bytes of a 2.0 request to series
//	spellingv2.go the labels of a 2.0 request to series that are known
//	decode.go     what both have in common, known series of 1.0 as well
//	histogram.go  native histograms, which both have in common
//	wire.go       protobuf fields
//	otlp.go       OTLP metrics: decode, translate, store, answer
//	body.go       reading and decompressing a request, bounded
//	read.go       remote read: decode, plan, choose the answer
//	samples.go    the answer in one block, samples_histogram.go its histograms
//	streamed.go   the answer in frames of chunks
//	starts.go     chunks for clients that know no start timestamps
//	federate.go   the newest samples as text
//	explain.go    what a selector reads, as JSON
//	errors.go     errors to status codes and log lines
//	metrics.go    counters of all this
package remote

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says what a Handler is made of. Engine and Now are required; a zero
// limit takes its default.
type Config struct {
	// Engine stores and finds samples: an *engine.Engine.
	Engine backend
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
	// MaxWriteBytes is how many bytes of writes, as decompressed, may be in flight
	// at once; others wait. As much again may be on its way in, as sent. A write
	// larger than this runs alone. In memory a write takes a small multiple of its
	// bytes, in the worst case, of samples without content, about fourteen times.
	MaxWriteBytes int // 128 MiB

	// ReadTimeout is how long a read may take, answer included.
	ReadTimeout time.Duration // 2m
	// MaxConcurrentReads is how many reads, federations and explanations may run
	// at once; others wait, for half of ReadTimeout and for no more than 30 s, so
	// that a client with a timeout of a minute hears when to come again.
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
	// CurrentLookback is how old the newest sample of a series may be to show up
	// in a federation.
	CurrentLookback time.Duration // 5m
}

// withDefaults returns cfg with a value for each limit that is zero.
func (cfg Config) withDefaults() Config {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
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
	return cfg
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// backend is what a Handler asks of an engine.
type backend interface {
	writeEngine
	readEngine
	federateEngine
	explainEngine
}

// Handler serves
//
//	POST      /api/v1/write, /write    remote write 1.0 and 2.0
//	POST      /api/v1/otlp/v1/metrics  OTLP metrics
//	POST      /api/v1/read, /read      remote read
//	GET       /federate                the newest samples
//	GET POST  /api/v1/explain          what a selector reads
//
// and nothing else. It is safe for concurrent use.
type Handler struct {
	mux *http.ServeMux
}

// maxReadWait is how long a read waits for a slot.
const maxReadWait = 30 * time.Second

// New returns a Handler. Its metrics are registered with cfg.Registerer, where
// they must not be registered yet.
func New(cfg Config) *Handler {
	cfg = cfg.withDefaults()
	e := newEdge(cfg.Logger, cfg.Now)
	m := newHTTPMetrics(cfg.Registerer)
	reads := newGate(cfg.MaxConcurrentReads, min(cfg.ReadTimeout/2, maxReadWait))

	writes := newWriteHandler(writeConfig{
		Engine: cfg.Engine, Errors: e, Registerer: cfg.Registerer,
		MaxBodyBytes: cfg.MaxBodyBytes, Timeout: cfg.WriteTimeout,
		MaxConcurrent: cfg.MaxConcurrentWrites, MaxBytes: cfg.MaxWriteBytes,
	})
	writeV := m.instrument("write", writes, http.MethodPost)
	readV := m.instrument("read", newReadHandler(readConfig{
		Engine: cfg.Engine, Errors: e, Gate: reads, Registerer: cfg.Registerer,
		MaxBodyBytes: cfg.MaxBodyBytes, Timeout: cfg.ReadTimeout,
		MaxQueries: cfg.MaxQueries, MaxSamples: cfg.MaxSamples, MaxFrameBytes: cfg.MaxFrameBytes,
	}), http.MethodPost)
	federateV := newFederateHandler(federateConfig{
		Engine: cfg.Engine, Errors: e, Gate: reads, Now: cfg.Now,
		Timeout: cfg.ReadTimeout, MaxSelectors: cfg.MaxQueries, Lookback: cfg.CurrentLookback,
	})
	explainV := newExplainHandler(explainConfig{
		Engine: cfg.Engine, Errors: e, Gate: reads, Now: cfg.Now,
		Timeout: cfg.ReadTimeout, MaxSelectors: cfg.MaxQueries,
	})

	h := &Handler{mux: http.NewServeMux()}
	h.mux.Handle("/api/v1/write", writeV)
	h.mux.Handle("/write", writeV)
	h.mux.Handle("/api/v1/otlp/v1/metrics", m.instrument("otlp", newOTLPHandler(writes), http.MethodPost))
	h.mux.Handle("/api/v1/read", readV)
	h.mux.Handle("/read", readV)
	h.mux.Handle("/federate", m.instrument("federate", federateV, http.MethodGet))
	h.mux.Handle("/api/v1/explain", m.instrument("explain", explainV, http.MethodGet, http.MethodPost))
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mux.ServeHTTP(w, r)
}

// allowMethod says whether the method of r is one of methods; if not, it has
// answered.
func allowMethod(w http.ResponseWriter, r *http.Request, methods []string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}
