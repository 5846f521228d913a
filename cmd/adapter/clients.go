package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/go-kit/log/level"
	configutil "github.com/prometheus/common/config"
	"github.com/prometheus/exporter-toolkit/web"
	sloggokit "github.com/tjhop/slog-gokit"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/users"
)

// readFiles reads the web configuration and the users.
func (s *server) readFiles() (err error) {
	if path := s.o.webConfig; path != "" {
		if err := web.Validate(path); err != nil {
			return fmt.Errorf("--web.config.file: %w", err)
		}
		s.passwords.path = path
		cfg, err := s.passwords.config()
		if err != nil {
			return fmt.Errorf("--web.config.file: %w", err)
		}
		s.headers = cfg.HTTPConfig.Header
		if cfg.TLSConfig.IsEnabled() {
			s.scheme = "https"
			metricset.New(s.reg).GaugeFunc("adapter_web_certificate_expiry_timestamp_seconds",
				"When the certificate of --web.config.file ends. 0 if its file cannot be read now.", s.passwords.certificateEnd)
		}
	}
	if path := s.o.web.usersFile; path != "" {
		if s.users, err = users.Open(path, s.o.tenancy.enabled, s.reg); err != nil {
			return fmt.Errorf("--web.users-file: %w", err)
		}
	}
	return nil
}

// passwords are the users of basic auth in a web configuration file. They are safe for concurrent use.
type passwords struct {
	path string

	mu   sync.Mutex
	text []byte
	read web.Config
	err  error
}

// config returns the web configuration that the file has now: package web reads it anew for each request, too.
func (p *passwords) config() (web.Config, error) {
	text, err := os.ReadFile(p.path)
	if err != nil {
		return web.Config{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil || !bytes.Equal(text, p.text) {
		p.text, p.read = text, web.Config{}
		p.err = yaml.Unmarshal(text, &p.read)
	}
	return p.read, p.err
}

// certificateEnd returns when the certificate that package web serves now ends, in seconds since 1970, or 0 if it cannot be read.
func (p *passwords) certificateEnd() float64 {
	cfg, err := p.config()
	if err != nil {
		return 0
	}
	text := []byte(cfg.TLSConfig.TLSCert)
	if path := cfg.TLSConfig.TLSCertPath; path != "" {
		if text, err = os.ReadFile(configutil.JoinDir(filepath.Dir(p.path), path)); err != nil {
			return 0
		}
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" { // as in crypto/tls, the first certificate is that of the server
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return 0
		}
		return float64(certificate.NotAfter.Unix())
	}
	return 0
}

// checks says whether package web checks the password of a user.
func (p *passwords) checks(name string) bool {
	if p.path == "" {
		return false
	}
	cfg, err := p.config()
	_, ok := cfg.Users[name]
	return err == nil && ok
}

// protect puts what the web configuration and the users ask for in front of the handler of the server.
func (s *server) protect() error {
	next := s.http.Handler
	if s.users != nil {
		s.http.Handler = s.users.WithPassword(s.passwords.checks, next)
	} else {
		s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name, _, ok := r.BasicAuth(); ok && s.passwords.checks(name) {
				r = r.WithContext(request.WithUser(r.Context(), name))
			}
			next.ServeHTTP(w, r)
		})
	}
	if s.o.webConfig != "" {
		// It puts its check of passwords in front of the handler, and its configuration of TLS into the server, before it
		// finds that there is nothing to serve.
		err := web.Serve(noListener{}, s.http, &web.FlagConfig{WebConfigFile: &s.o.webConfig}, slog.New(sloggokit.NewGoKitHandler(s.logger, slog.LevelWarn)))
		if !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	checked := s.http.Handler
	if s.users != nil {
		checked = s.users.Identify(s.errors, checked, next)
	}
	// Whatever answers, it does not wait for a body that a client does not send.
	s.http.Handler = request.WithBodies(s.withHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isFree("GET " + strings.TrimPrefix(r.URL.Path, s.o.web.prefix)) {
			next.ServeHTTP(w, r)
			return
		}
		checked.ServeHTTP(w, r)
	})))
	return nil
}

// apiPolicy is for answers that are no page: a browser that shows one runs nothing of it, and no page frames it.
const apiPolicy = "default-src 'none'; frame-ancestors 'none'"

// withHeaders adds headers of security to all answers of next, and those of the web configuration, which hold in their place.
func (s *server) withHeaders(next http.Handler) http.Handler {
	headers := map[string]string{"Content-Security-Policy": apiPolicy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
	maps.Copy(headers, s.headers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

// noListener is a listener that is closed.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }

// reload reads the users and the files of rules again, and logs it.
func (s *server) reload(ctx context.Context) error {
	if rules := s.ruleFiles.Load(); rules != nil {
		if err := rules.reload(ctx); err != nil {
			level.Error(s.logger).Log("msg", "rules are not loaded, those before stay in force", "err", err)
			return err
		}
		level.Info(s.logger).Log("msg", "rules are loaded")
	}
	if s.users == nil {
		return nil
	}
	if err := s.users.Reload(); err != nil {
		level.Error(s.logger).Log("msg", "users are not loaded, those before stay in force", "err", err)
		return err
	}
	level.Info(s.logger).Log("msg", "users are loaded", "users", s.users.Len())
	return nil
}

// reloadOnSignal reads the users and the files of rules again at each SIGHUP, until ctx ends. Without either the signal ends the process, as is usual.
func (s *server) reloadOnSignal(ctx context.Context) {
	if s.users == nil && len(s.o.ruleFiles.files) == 0 {
		return
	}
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangUp)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangUp:
				_ = s.reload(ctx) // it is logged
			}
		}
	}()
}
