package move

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// TestHeal: a Prometheus was started anew while the adapter was down, so it never sends what it has scraped meanwhile. heal brings it, and nothing else: what the adapter has
// already stays, also where it has another value. Then nothing is missing, and Prometheus and the adapter answer the same.
func TestHeal(t *testing.T) {
	for _, b := range []harness.Backend{harness.Embedded(t), harness.WithBuffer(harness.Embedded(t), t.TempDir()), harness.Emulator(t)} {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			a := harness.StartAdapter(t, b, "--web.enable-admin-api")
			data := filepath.Join(t.TempDir(), "data")
			p := harness.StartPrometheusOn(t, data, "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y", "--storage.remote.flush-deadline=1s")
			configure := func(p *harness.Prometheus) {
				t.Helper()
				r := harness.Receiver{Adapter: a, Backend: "embedded", Protocol: harness.RemoteWrite2()}
				scrapes := harness.ScrapeConfig(harness.Job{Name: "prometheus", Targets: []string{p.Addr}})
				p.Configure(t, strings.Replace(scrapes, "global:\n", "global:\n  external_labels: {cluster: c}\n", 1)+"  - job_name: out\n    static_configs: [{targets: ['127.0.0.1:1']}]\n"+
					strings.Replace(harness.WriteConfig([]harness.Receiver{r}), "    send_exemplars: true\n", "", 1))
			}
			begin := harness.NowMillis()
			configure(p)
			p.AwaitScrapes(t, 2, begin+5000)
			harness.Eventually(t, "samples come", func() error {
				found, err := harness.Elements(a.URL("/api/v1/query"), map[string][]string{"query": {"up"}})
				if err == nil && len(found) < 2 {
					err = fmt.Errorf("%v", found)
				}
				return err
			})
			a.Kill(t)
			down := harness.NowMillis()
			p.AwaitScrapes(t, 2, down+3000)
			p.Terminate(t) // what it has not sent it forgets
			// A series that the adapter knows nothing of, and native histograms.
			p = harness.StartPrometheusOn(t, data, "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y", "--storage.remote.flush-deadline=1s")
			between := harness.NowMillis()
			fillAt(t, p, between-2000, 3)
			a.Rerun(t)
			configure(p)
			up := harness.NowMillis()
			p.AwaitScrapes(t, 2, up+5000)
			end := harness.NowMillis()
			harness.Eventually(t, "it sends again", func() error {
				found, err := harness.Elements(a.URL("/api/v1/query"), map[string][]string{"query": {"max(timestamp(up)) > " + harness.FormatSeconds(end)}})
				if err == nil && len(found) == 0 {
					err = errors.New("nothing so new")
				}
				return err
			})
			heal := func(more ...string) (int, string) {
				t.Helper()
				words := append([]string{"heal", "--from=" + p.URL(""), "--url=" + a.URL(""), "--end=" + harness.FormatSeconds(end)}, more...)
				return harness.RunCommand(t, harness.Backend{}, words...)
			}
			code, output := heal("--last=1h", "--dry-run")
			if code != 0 || !strings.Contains(output, "are missing; nothing is written") || strings.Contains(output, "\n0 samples") {
				t.Fatalf("what is missing: %d, %s", code, output)
			}
			if code, output := heal("--last=1h", "--dry-run", "--match=nothing"); code != 0 || !strings.Contains(output, "0 samples of 0 series are missing") {
				t.Errorf("of a metric that is not there: %d, %s", code, output)
			}
			if code, output := heal("--start=" + harness.FormatSeconds(begin-60_000)); code != 0 || !strings.Contains(output, "samples were missing and are written") {
				t.Fatalf("heal: %d, %s", code, output)
			}
			if code, output := heal("--last=1h", "--dry-run"); code != 0 || !strings.Contains(output, "0 samples of 0 series are missing") {
				t.Errorf("after that: %d, %s", code, output)
			}
			if code, output := heal("--last=1h"); code != 0 || !strings.Contains(output, "0 samples were missing") {
				t.Errorf("again: %d, %s", code, output)
			}
			q := harness.Query{Mint: begin - 60_000, Maxt: end, Matchers: harness.MustMatchers(t, "__name__", "=~", ".+")}
			for _, as := range harness.AnswerTypes() {
				want := harness.MustRead(t, p.URL("/api/v1/read"), as, q)
				if diff := harness.DiffSeries(harness.MustRead(t, a.URL("/api/v1/read"), as, q), want); diff != "" || harness.CountPoints(want) < 1000 {
					t.Fatalf("%d samples: %s", harness.CountPoints(want), diff)
				}
			}
			for _, c := range []struct{ words, want string }{
				{"--last=6h --start=1", "give either --last"}, {"", "give either --last"}, {"--last=1m", "the start is after the end"},
			} {
				words := append([]string{"heal", "--from=" + p.URL(""), "--url=" + a.URL("")}, strings.Fields(c.words)...)
				if code, output := harness.RunCommand(t, harness.Backend{}, words...); code == 0 || !strings.Contains(output, c.want) {
					t.Errorf("%q: %d, %s", c.words, code, output)
				}
			}
			// Of a time that both have, the sample of the sender stays.
			at := harness.PointAt(time.Now().Add(-time.Minute).UnixMilli(), 1)
			s := harness.SentSeries{Labels: []string{"__name__", "both"}, Points: []harness.Point{at}}
			harness.RemoteWrite2().MustSend(t, p.URL("/api/v1/write"), s)
			s.Points[0].Bits++
			s.Labels = append(s.Labels, "cluster", "c")
			harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), s)
			if code, output := harness.RunCommand(t, harness.Backend{}, "heal", "--from="+p.URL(""), "--url="+a.URL(""), "--match=both", "--last=1h", "--end="+harness.FormatSeconds(harness.NowMillis())); code != 0 || !strings.Contains(output, "0 samples were missing") {
				t.Errorf("of another value: %d, %s", code, output)
			}
		})
	}
}
