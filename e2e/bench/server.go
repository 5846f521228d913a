package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// The names of the servers, as --only takes them.
const (
	adapterName    = "adapter"
	prometheusName = "prometheus"
	victoriaName   = "victoriametrics"
)

// A contender is a program that takes samples.
type contender struct {
	name       string
	title      string
	version    string
	protocols  []string // versions of remote write
	remoteRead bool
	// start runs it with its data below dir, which is empty.
	start func(ctx context.Context, dir string) (*server, error)
}

// A server is a contender that runs.
type server struct {
	*harness.Process
	url  string
	data string // directory; empty if the data are not on this disk
	skip string // file or directory in data that does not count: nothing is lost without it
	// flush is a path to GET that makes what was written visible, snapshot one to
	// POST that writes everything as blocks below skip. They may be empty.
	flush, snapshot string
	emulator        *harness.Process // or nil
}

// close ends what still runs.
func (s *server) close() {
	s.End()
	if s.emulator != nil {
		s.emulator.End()
	}
}

// stop wants the server to end cleanly.
func (s *server) stop() error { return s.Stop(patience().Limit) }

// patience bounds waits for a start and for a stop, also of millions of series.
func patience() harness.Wait {
	return harness.Wait{Limit: 20 * time.Minute, Pause: 50 * time.Millisecond}
}

// startProcess starts a program that ends, at the latest, with ctx or with this process.
func startProcess(ctx context.Context, name string, c harness.Command) (*harness.Process, error) {
	p, err := harness.Start(name, c)
	if err == nil {
		context.AfterFunc(ctx, p.End)
	}
	return p, err
}

// A launch says how to start a server. Its arguments may hold ADDRESS.
type launch struct {
	name  string
	path  string
	env   []string
	args  []string
	ready string // path that answers 200 once it serves
}

// serve starts a server at a free port.
func (l launch) serve(ctx context.Context) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	args := slices.Clone(l.args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "ADDRESS", address)
	}
	p, err := startProcess(ctx, l.name, harness.Command{Path: l.path, Args: args, Env: l.env})
	if err != nil {
		return nil, err
	}
	s := &server{Process: p, url: "http://" + address}
	err = p.Await(ctx, patience(), "is ready", func() error {
		_, err := s.call(ctx, http.MethodGet, l.ready)
		return err
	})
	if err != nil {
		p.End()
		return nil, err
	}
	return s, nil
}

// freeAddress returns a loopback address that no process listens at.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// newAdapter is the adapter with the embedded store.
func newAdapter(p program, args []string) contender {
	start := func(ctx context.Context, dir string) (*server, error) {
		s, err := launch{adapterName, p.path, nil, adapterArgs(args, "--storage.path="+dir), "/-/ready"}.serve(ctx)
		if err != nil {
			return nil, err
		}
		s.data, s.skip = dir, filepath.Join(dir, "RESERVE")
		return s, nil
	}
	return contender{adapterName, "adapter", p.version, []string{"1.0", "2.0"}, true, start}
}

// newBigtableAdapter is the adapter with an emulator of its own.
func newBigtableAdapter(p, emulator program, args []string) contender {
	start := func(ctx context.Context, dir string) (*server, error) {
		e, err := startProcess(ctx, "emulator", harness.Command{Path: emulator.path, Args: []string{"-host=127.0.0.1", "-port=0"}})
		if err != nil {
			return nil, err
		}
		s, err := onEmulator(ctx, p, e, args)
		if err != nil {
			e.End()
			return nil, err
		}
		s.emulator = e
		return s, nil
	}
	version := p.version + ", emulator " + emulator.version
	return contender{adapterName, "adapter on Bigtable", version, []string{"1.0", "2.0"}, true, start}
}

// onEmulator starts the adapter once the emulator listens.
func onEmulator(ctx context.Context, p program, e *harness.Process, args []string) (*server, error) {
	var address string
	err := e.Await(ctx, patience(), "listens", func() (err error) {
		address, err = emulatorAddress(e.Printed())
		return err
	})
	if err != nil {
		return nil, err
	}
	return onBigtable(ctx, p, address, args)
}

// bigtableName is the name of the project and of the instance.
const bigtableName = "bench"

// onBigtable starts the adapter with an emulator at an address.
func onBigtable(ctx context.Context, p program, address string, args []string) (*server, error) {
	all := adapterArgs(args, "--storage.backend=bigtable", "--bigtable.project="+bigtableName, "--bigtable.instance="+bigtableName)
	return launch{adapterName, p.path, []string{"BIGTABLE_EMULATOR_HOST=" + address}, all, "/-/ready"}.serve(ctx)
}

// adapterArgs puts defaults before args that do not set them: the adapter's own
// metrics are not part of the workload.
func adapterArgs(args []string, more ...string) []string {
	all := append(slices.Clone(args), "--web.listen-address=ADDRESS")
	for _, arg := range append(more, "--self-scrape-interval=0s", "--log.level=warn") {
		name, _, _ := strings.Cut(arg, "=")
		if !slices.ContainsFunc(args, func(s string) bool { return s == name || strings.HasPrefix(s, name+"=") }) {
			all = append(all, arg)
		}
	}
	return all
}

// newPrometheus is Prometheus as a receiver of remote write.
func newPrometheus(p program, args ...string) contender {
	start := func(ctx context.Context, dir string) (*server, error) {
		config, data := filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "data")
		if err := os.WriteFile(config, []byte("global: {}\n"), 0o600); err != nil {
			return nil, err
		}
		s, err := launch{prometheusName, p.path, nil, append([]string{
			"--config.file=" + config, "--storage.tsdb.path=" + data, "--web.listen-address=ADDRESS",
			"--web.enable-remote-write-receiver", "--web.enable-admin-api", "--log.level=warn", "--storage.tsdb.retention.time=10y",
		}, args...), "/-/ready"}.serve(ctx)
		if err != nil {
			return nil, err
		}
		s.data, s.snapshot, s.skip = data, "/api/v1/admin/tsdb/snapshot", filepath.Join(data, "snapshots")
		return s, nil
	}
	return contender{prometheusName, "Prometheus", p.version, []string{"1.0", "2.0"}, true, start}
}

// newVictoria is VictoriaMetrics, single node. It does not take remote write 2.0.
func newVictoria(p program, args ...string) contender {
	start := func(ctx context.Context, dir string) (*server, error) {
		s, err := launch{victoriaName, p.path, nil, append([]string{
			"-storageDataPath=" + dir, "-httpListenAddr=ADDRESS", "-loggerLevel=WARN", "-retentionPeriod=10y",
		}, args...), "/health"}.serve(ctx)
		if err != nil {
			return nil, err
		}
		s.data, s.flush, s.skip = dir, "/internal/force_flush", filepath.Join(dir, "cache")
		return s, nil
	}
	return contender{victoriaName, "VictoriaMetrics", p.version, []string{"1.0"}, false, start}
}

// emulatorAddress finds where the emulator says that it listens.
func emulatorAddress(log string) (string, error) {
	address := regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(log)
	if address == "" {
		return "", fmt.Errorf("no address in %q", log)
	}
	return address, nil
}
