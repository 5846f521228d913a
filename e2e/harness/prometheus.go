package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// A Prometheus is a Prometheus server, running.
type Prometheus struct {
	*Process
	config string // path of prometheus.yml
	data   string // directory of its TSDB
	Addr   string // host:port
}

// StartPrometheus starts Prometheus on a free port, with an empty configuration
// and more flags, and waits until it serves.
func StartPrometheus(t testing.TB, args ...string) *Prometheus {
	t.Helper()
	return StartPrometheusOn(t, filepath.Join(t.TempDir(), "data"), args...)
}

// StartPrometheusOn is StartPrometheus with the blocks that are in the directory data.
func StartPrometheusOn(t testing.TB, data string, args ...string) *Prometheus {
	t.Helper()
	p := &Prometheus{config: filepath.Join(t.TempDir(), "prometheus.yml"), data: data}
	if err := os.WriteFile(p.config, []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"--config.file=" + p.config,
		"--storage.tsdb.path=" + data,
		"--web.listen-address=127.0.0.1:0",
		"--web.enable-lifecycle",
		"--scrape.discovery-reload-interval=1s",
		"--storage.tsdb.max-block-chunk-segment-size=4MB", // each block is given a whole segment at first, which takes long on a disk in memory
	}, args...)
	p.run(t, args)
	return p
}

// CreateBlocks lets promtool make blocks of the file text, in the format of OpenMetrics, in the new directory dir. It works on the disk: for each
// block it allocates half a gigabyte, which a file system in memory clears.
func CreateBlocks(t testing.TB, text, dir string, flags ...string) {
	t.Helper()
	onDisk, err := os.MkdirTemp(cacheDir(), "promtable-blocks-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(onDisk)
	words := append(append([]string{"tsdb", "create-blocks-from"}, flags...), "openmetrics", text, onDisk)
	if output, err := exec.Command(PromtoolProgram(t), words...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := os.CopyFS(dir, os.DirFS(onDisk)); err != nil {
		t.Fatal(err)
	}
}

// run starts the program and waits until it serves.
func (p *Prometheus) run(t testing.TB, args []string) {
	t.Helper()
	p.Process = start(t, "prometheus", Command{Path: prometheusProgram(t), Args: args})
	line := p.WaitLine(t, `msg="Listening on"`)
	p.Addr = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(line)
	p.WaitLine(t, "Server is ready to receive web requests")
}

// URL returns the URL of a path.
func (p *Prometheus) URL(path string) string { return "http://" + p.Addr + path }

// ConfigFile returns the path of its configuration.
func (p *Prometheus) ConfigFile() string { return p.config }

// Data returns the directory of its TSDB.
func (p *Prometheus) Data() string { return p.data }

// Configure gives Prometheus a new configuration, which promtool must accept.
func (p *Prometheus) Configure(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(PromtoolProgram(t), "check", "config", p.config).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, config)
	}
	resp, err := Post(context.Background(), p.URL("/-/reload"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != http.StatusOK {
		t.Fatalf("reload: %v", resp)
	}
}

// API returns the data of a query to the HTTP API. A warning is an error here:
// Prometheus reports a remote read that went wrong as one.
func (p *Prometheus) API(path string, params url.Values) (json.RawMessage, error) {
	return GetAPI(p.URL(path), params)
}

// Instant evaluates an expression at t, in milliseconds, and returns its
// elements as JSON, sorted: an instant query promises no order.
func (p *Prometheus) Instant(expr string, t int64) ([]string, error) {
	return p.elements("/api/v1/query", url.Values{"query": {expr}, "time": {FormatSeconds(t)}})
}

// Ranged evaluates an expression at steps of a second in [mint, maxt].
func (p *Prometheus) Ranged(expr string, mint, maxt int64) ([]string, error) {
	return p.elements("/api/v1/query_range", url.Values{
		"query": {expr}, "start": {FormatSeconds(mint)}, "end": {FormatSeconds(maxt)}, "step": {"1"},
	})
}

func (p *Prometheus) elements(path string, params url.Values) ([]string, error) {
	return Elements(p.URL(path), params)
}

// Elements returns the elements of the result of a query as JSON, sorted.
func Elements(url string, params url.Values) ([]string, error) {
	data, err := GetAPI(url, params)
	if err != nil {
		return nil, err
	}
	var answer struct{ Result []json.RawMessage }
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	elements := make([]string, len(answer.Result))
	for i, e := range answer.Result {
		elements[i] = string(e)
	}
	slices.Sort(elements)
	return elements, nil
}

// MustElements is Elements for a query that must be answered.
func MustElements(t testing.TB, url string, params url.Values) []string {
	t.Helper()
	all, err := Elements(url, params)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Names returns the metric names that Prometheus holds itself.
func (p *Prometheus) Names(t testing.TB) []string {
	t.Helper()
	resp, err := RoundTrip(context.Background(), http.MethodGet, p.URL("/api/v1/label/__name__/values"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct{ Data []string }
	if err := json.Unmarshal([]byte(resp.Body), &envelope); err != nil {
		t.Fatal(err)
	}
	return envelope.Data
}

// AwaitScrapes waits until so many targets were scraped later than after, which is
// in milliseconds. Nothing up to that time is still to come then: a target's scrapes follow one another.
func (p *Prometheus) AwaitScrapes(t testing.TB, targets int, after int64) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d targets are scraped after %d", targets, after), func() error {
		now := NowMillis()
		expr := fmt.Sprintf("timestamp(up) > %s", FormatSeconds(after))
		found, err := p.Instant(expr, now)
		if err == nil && len(found) < targets {
			err = fmt.Errorf("found %v", found)
		}
		return err
	})
}

// SameElements returns an error unless both lists hold the same elements, and some.
// It returns err first, which is that of the query for got.
func SameElements(got, want []string, err error) error {
	switch {
	case err != nil:
		return err
	case len(want) == 0:
		return errors.New("the reference is empty: nothing to compare")
	case len(got) != len(want):
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
	return nil
}
