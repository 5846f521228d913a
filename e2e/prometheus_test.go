package e2e

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
	"strings"
	"testing"
)

// A prometheus is a running Prometheus.
type prometheus struct {
	*process
	config string // path
	addr   string
}

// startPrometheus starts Prometheus on a free port, with nothing to do.
func startPrometheus(t testing.TB, args ...string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	p := &prometheus{config: filepath.Join(dir, "prometheus.yml")}
	if err := os.WriteFile(p.config, []byte("global: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{
		"--config.file=" + p.config,
		"--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0",
		"--web.enable-lifecycle",
		"--scrape.discovery-reload-interval=1s",
	}, args...)
	p.process = start(t, "prometheus", command{path: prometheusProgram(t), args: args})
	line := p.waitLine(t, `msg="Listening on"`)
	p.addr = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindString(line)
	p.waitLine(t, "Server is ready to receive web requests")
	return p
}

func (p *prometheus) url(path string) string { return "http://" + p.addr + path }

// configure gives Prometheus a new configuration.
func (p *prometheus) configure(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool(t), "check", "config", p.config).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, config)
	}
	resp, err := post(context.Background(), p.url("/-/reload"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.status != http.StatusOK {
		t.Fatalf("reload: %v", resp)
	}
}

// api returns the data of a query to the HTTP API. A warning is an error here:
// Prometheus reports a remote read that went wrong as one.
func (p *prometheus) api(path string, params url.Values) (json.RawMessage, error) {
	return api(p.url(path), params)
}

// api returns the data of a query to the HTTP API at url. A warning is an error.
func api(url string, params url.Values) (json.RawMessage, error) {
	resp, err := roundTrip(context.Background(), http.MethodGet, url+"?"+params.Encode(), nil, nil)
	if err != nil {
		return nil, err
	}
	var envelope struct {
		Status   string
		Data     json.RawMessage
		Error    string
		Warnings []string
	}
	if err := json.Unmarshal([]byte(resp.body), &envelope); err != nil {
		return nil, fmt.Errorf("%s: %w: %v", url, err, resp)
	}
	if envelope.Status != "success" || len(envelope.Warnings) > 0 {
		return nil, fmt.Errorf("%s %v: %s %v", url, params, envelope.Error, envelope.Warnings)
	}
	return envelope.Data, nil
}

// instant evaluates an expression at t, in milliseconds, and returns its
// elements as JSON, sorted: an instant query promises no order.
func (p *prometheus) instant(expr string, t int64) ([]string, error) {
	return p.elements("/api/v1/query", url.Values{"query": {expr}, "time": {seconds(t)}})
}

// ranged evaluates an expression at steps of a second in [mint, maxt].
func (p *prometheus) ranged(expr string, mint, maxt int64) ([]string, error) {
	return p.elements("/api/v1/query_range", url.Values{
		"query": {expr}, "start": {seconds(mint)}, "end": {seconds(maxt)}, "step": {"1"},
	})
}

func (p *prometheus) elements(path string, params url.Values) ([]string, error) {
	data, err := p.api(path, params)
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

// seconds prints milliseconds as the API reads times.
func seconds(t int64) string { return fmt.Sprintf("%d.%03d", t/1000, t%1000) }

// names returns the metric names that Prometheus holds itself.
func (p *prometheus) names(t testing.TB) []string {
	t.Helper()
	resp, err := roundTrip(context.Background(), http.MethodGet, p.url("/api/v1/label/__name__/values"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct{ Data []string }
	if err := json.Unmarshal([]byte(resp.body), &envelope); err != nil {
		t.Fatal(err)
	}
	return envelope.Data
}

// awaitScrapes waits until every target was scraped after t, so that nothing at
// or before t is still to come: a target's scrapes follow one another.
func (p *prometheus) awaitScrapes(t testing.TB, targets int, after int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d targets are scraped after %d", targets, after), func() error {
		now := nowMillis()
		expr := fmt.Sprintf("timestamp(up) > %s", seconds(after))
		found, err := p.instant(expr, now)
		if err == nil && len(found) < targets {
			err = fmt.Errorf("found %v", found)
		}
		return err
	})
}

// A job is a scrape job.
type job struct {
	name    string
	targets []string
	extra   string // more lines of the job, indented by four
}

// scrapeConfig is a configuration that scrapes jobs every second.
func scrapeConfig(jobs ...job) string {
	var b strings.Builder
	b.WriteString("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n")
	for _, j := range jobs {
		fmt.Fprintf(&b, "  - job_name: %s\n%s    static_configs:\n      - targets: ['%s']\n",
			j.name, j.extra, strings.Join(j.targets, "', '"))
	}
	return b.String()
}

// writeConfig makes Prometheus send everything to each adapter, in the protocol
// that goes with it.
func writeConfig(receivers []receiver) string {
	var b strings.Builder
	b.WriteString("remote_write:\n")
	for _, r := range receivers {
		fmt.Fprintf(&b, "  - url: %s\n    name: %s\n    protobuf_message: %s\n", r.url("/api/v1/write"), r.id(), r.protocol.message)
		b.WriteString("    queue_config: {batch_send_deadline: 1s, max_shards: 4}\n")
		b.WriteString("    send_exemplars: true\n    send_native_histograms: true\n")
		b.WriteString("    metadata_config: {send: true, send_interval: 1s}\n")
	}
	return b.String()
}

// readConfig makes Prometheus read everything from one adapter.
func readConfig(a *adapter) string {
	return fmt.Sprintf("remote_read:\n  - url: %s\n    read_recent: true\n", a.url("/api/v1/read"))
}

// A receiver is an adapter and the protocol in which it is written to.
type receiver struct {
	*adapter
	backend  string
	protocol protocol
}

// id names the receiver.
func (r receiver) id() string { return r.backend + "-" + r.protocol.name }

// same wants both to give the same elements, and some.
func same(got, want []string, err error) error {
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
