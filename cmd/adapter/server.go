package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/index/repanic"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/users"
)

// server is the HTTP server. It takes its addresses at the start, so that a busy port is
// noticed before the store opens. It serves when the adapter is ready.
type server struct {
	o         *options
	logger    log.Logger
	reg       *prometheus.Registry
	listeners []net.Listener
	// admin listens at --web.admin-listen-address. It is nil without.
	admin  net.Listener
	scheme string
	http   *http.Server
	// users may send requests. It is nil if all clients may. passwords are those of basic auth.
	users     *users.File
	passwords passwords
	errors    *request.Responder
	// ruleFiles are nil before the store is open, and without files of rules.
	ruleFiles atomic.Pointer[ruleFiles]
	// headers are those that the web configuration adds to each answer.
	headers map[string]string
	// served answers requests. It is replaced when the adapter is ready.
	served atomic.Pointer[served]
	ready  atomic.Bool
	// missing is what the start waits for, nil if it goes on.
	missing atomic.Pointer[error]
	// running counts running requests: the store must not close before they end.
	running sync.WaitGroup
}

// served are the handlers of requests at --web.listen-address, and at --web.admin-listen-address.
type served struct{ all, admin http.Handler }

// listen reads the files about clients, and takes the addresses.
func listen(o *options, logger log.Logger, reg *prometheus.Registry) (*server, error) {
	s := &server{o: o, logger: logger, reg: reg, scheme: "http", errors: request.NewResponder(logger, o.now)}
	if err := s.readFiles(); err != nil {
		return nil, err
	}
	for _, address := range o.listen {
		l, err := o.netListen("tcp", address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--web.listen-address=%s: %w", address, err)
		}
		s.listeners = append(s.listeners, l)
	}
	if address := o.web.adminListen; address != "" {
		l, err := o.netListen("tcp", address)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("--web.admin-listen-address=%s: %w", address, err)
		}
		s.admin = l
	}
	return s, nil
}

// address returns the first address of the server, with host instead of an unspecified
// address.
func (s *server) address(host string) string {
	address := s.listeners[0].Addr().(*net.TCPAddr)
	if address.IP.IsUnspecified() {
		return net.JoinHostPort(host, strconv.Itoa(address.Port))
	}
	return address.String()
}

// instance is the instance label of the adapter's own metrics.
func (s *server) instance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return s.address(host)
}

// errServing says that the server stopped by itself.
var errServing = errors.New("serve")

// start answers as an adapter that is not ready. If serving fails, it calls fail with an
// errServing.
func (s *server) start(fail context.CancelCauseFunc) {
	s.answer(s.startingRoutes())
	s.http = &http.Server{
		Handler: s.o.traced(s.counted(s.recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := s.served.Load()
			if isAdmin, _ := r.Context().Value(adminKey{}).(bool); isAdmin {
				now.admin.ServeHTTP(w, r)
				return
			}
			now.all.ServeHTTP(w, r)
		})))),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		BaseContext: func(l net.Listener) context.Context {
			// With TLS it is not the listener itself.
			isAdmin := s.admin != nil && l.Addr().String() == s.admin.Addr().String()
			return context.WithValue(context.Background(), adminKey{}, isAdmin)
		},
	}
	if err := s.protect(); err != nil {
		fail(fmt.Errorf("%w: %w", errServing, err))
		return
	}
	listeners := s.listeners
	if s.admin != nil {
		listeners = append(listeners[:len(listeners):len(listeners)], s.admin)
	}
	for _, l := range listeners {
		go func() {
			serve := s.http.Serve
			if s.scheme == "https" {
				serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
			}
			if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
				fail(fmt.Errorf("%w: %w", errServing, err))
			}
		}()
	}
}

// adminKey is the key, in the context of a request, of whether it came to --web.admin-listen-address.
type adminKey struct{}

// answer makes these handlers answer all requests from now on.
func (s *server) answer(now served) { s.served.Store(&now) }

// serve answers requests until ctx ends and running ones are done.
func (s *server) serve(ctx context.Context, h handlers) error {
	s.answer(s.serving(s.routes(h)))
	s.ready.Store(true)
	url := s.link()
	level.Info(s.logger).Log("msg", "ready to serve", "address", s.listeners[0].Addr(),
		"remote_write", url+"/api/v1/write", "remote_read", url+"/api/v1/read", "grafana", url, "page", url+"/")
	if s.o.onReady != nil {
		s.o.onReady(ctx, s.own(), url)
	}
	<-ctx.Done()
	s.ready.Store(false)
	if delay := s.o.shutdownDelay; delay > 0 {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		level.Info(s.logger).Log("msg", "not ready any more, and answering until balancers know; another signal ends that", "for", delay)
		select {
		case <-time.After(delay):
		case <-again:
		}
		signal.Stop(again)
	}
	return s.shutdown()
}

// shutdown accepts no more requests and waits for the running ones.
func (s *server) shutdown() error {
	level.Info(s.logger).Log("msg", "stopping, waiting for running requests")
	ctx, cancel := context.WithTimeout(context.Background(), s.o.shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		err = errors.Join(fmt.Errorf("requests still running after %s were cancelled: %w", s.o.shutdownTimeout, err), s.http.Close())
		s.running.Wait() // not long: their contexts have ended with their clients
		return err
	}
	return nil
}

// counted counts requests as running while next serves them.
func (s *server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.running.Add(1)
		defer s.running.Done()
		next.ServeHTTP(w, r)
	})
}

// recovered answers 500 if next panics before it has written an answer. Otherwise it closes
// the connection, so that no client takes a part of an answer for all of it. The 500 has
// the headers from before next: a header that next has set, such as Content-Encoding,
// describes a body that it did not write.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w}
		header := w.Header().Clone()
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			if value == http.ErrAbortHandler {
				panic(value)
			}
			stack := debug.Stack()
			if other, ok := value.(*repanic.Panic); ok {
				stack = other.Stack
			}
			level.Error(s.logger).Log("msg", "a request failed by a defect of the adapter", "path", r.URL.Path, "panic", fmt.Sprint(value), "stack", string(stack))
			if a.started {
				panic(http.ErrAbortHandler)
			}
			clear(w.Header())
			maps.Copy(w.Header(), header)
			http.Error(w, "The adapter has a defect, its log says more.", http.StatusInternalServerError)
		}()
		next.ServeHTTP(a, r)
	})
}

// An answer is a ResponseWriter that records whether anything was written.
type answer struct {
	http.ResponseWriter
	started bool
}

func (a *answer) WriteHeader(code int) {
	a.started = a.started || code >= http.StatusOK
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(b []byte) (int, error) {
	a.started = true
	return a.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls for streamed answers.
func (a *answer) FlushError() error {
	a.started = true
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is what http.ResponseController uses for anything else.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// close closes the listeners, and cancels running requests.
func (s *server) close() {
	if s.http != nil {
		s.http.Close()
	}
	for _, l := range s.listeners {
		l.Close()
	}
	if s.admin != nil {
		s.admin.Close()
	}
}

// retryAfter is after how many seconds a client should retry while the adapter starts.
const retryAfter = "5"

// waitFor sets the reason for which the start waits, for the answers to requests. nil is
// none.
func (s *server) waitFor(reason error) {
	if reason == nil {
		s.missing.Store(nil)
		return
	}
	s.missing.Store(&reason)
}

// starting answers a request that the start does not allow yet: a browser with a page that asks again by itself.
func (s *server) starting(w http.ResponseWriter, r *http.Request, text string) {
	if reason := s.missing.Load(); reason != nil {
		text = "The adapter is starting: " + (*reason).Error()
	}
	if part := s.replayed(); part > 0 && part < 1 {
		text += fmt.Sprintf(" It has replayed %.0f %% of its log.", math.Floor(part*100))
	}
	w.Header().Set("Retry-After", retryAfter)
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintf(w, startingPage, html.EscapeString(text))
}

// startingPage is what a browser shows until the adapter is ready. It loads itself again every two seconds.
const startingPage = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><meta http-equiv="refresh" content="2"><title>promtable is starting</title></head>
<body><h1>promtable is starting</h1><p>%s</p><p>This page shows the adapter as soon as it is ready.</p></body>
</html>
`

// replayed returns which part of the log has been replayed, from 0 to 1: 0 if that is not known.
func (s *server) replayed() float64 {
	families, _ := s.reg.Gather() // what went wrong with others does not matter here
	for _, family := range families {
		if family.GetName() == buffer.ReplayMetric {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// startingRoutes answers while the adapter opens its store and replays its log: it is
// alive, operators may watch it, and clients shall retry.
func (s *server) startingRoutes() served {
	all := append(s.operatorRoutes(), route{pattern: "/", body: unbounded(0), at: bothAddresses, serve: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.starting(w, r, "The adapter is starting: it opens its store and replays its log.")
	})})
	return s.serving(all)
}

// operatorRoutes returns the routes that answer at all times: health, metrics and profiles.
func (s *server) operatorRoutes() []route {
	metrics := promhttp.InstrumentMetricHandler(s.reg, promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{Registry: s.reg, EnableOpenMetrics: true}))
	all := []route{
		{pattern: "GET " + healthyPath, at: bothAddresses, serve: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "The adapter is healthy.") })},
		{pattern: "GET " + readyPath, at: bothAddresses, serve: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !s.ready.Load() {
				s.starting(w, r, "The adapter is starting or stopping.")
				return
			}
			fmt.Fprintln(w, "The adapter is ready.")
		})},
		{pattern: "GET /metrics", need: users.Need{Role: users.Read, AllTenants: true}, at: adminAddress, serve: metrics},
	}
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /debug/pprof/":        pprof.Index,
		"GET /debug/pprof/cmdline": pprof.Cmdline,
		"GET /debug/pprof/profile": pprof.Profile,
		"GET /debug/pprof/symbol":  pprof.Symbol,
		"POST /debug/pprof/symbol": pprof.Symbol,
		"GET /debug/pprof/trace":   pprof.Trace,
	} {
		all = append(all, route{pattern: pattern, need: operator, body: maxForm, at: adminAddress, serve: serve})
	}
	if s.users != nil || len(s.o.ruleFiles.files) > 0 {
		all = append(all, route{pattern: "POST " + reloadPath, need: operator, audit: true, at: adminAddress, serve: s.guarded(true, http.HandlerFunc(s.serveReload))})
	}
	return all
}

// serveReload reads the users and the files of rules again.
func (s *server) serveReload(w http.ResponseWriter, r *http.Request) {
	if err := s.reload(r.Context()); err != nil {
		request.Note(r.Context(), "err", err.Error())
		http.Error(w, request.ErrorText(err), http.StatusInternalServerError)
		return
	}
	if s.users == nil {
		fmt.Fprintln(w, "The rules are loaded.")
		return
	}
	fmt.Fprintf(w, "%d users are loaded.\n", s.users.Len())
}
