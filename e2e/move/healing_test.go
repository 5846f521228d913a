package move

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestHealing: an adapter with --heal.from brings by itself what a Prometheus has scraped and not sent, as it was started anew while the adapter was down. It
// reads nothing while the Prometheus has not sent again.
func TestHealing(t *testing.T) {
	for _, b := range []harness.Backend{harness.Embedded(t), harness.WithBuffer(harness.Emulator(t), t.TempDir())} {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			start := func(args ...string) *harness.Prometheus {
				return harness.StartPrometheusOn(t, data, append(args, "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y", "--storage.remote.flush-deadline=1s")...)
			}
			p := start()
			addr := p.Addr
			a := harness.StartAdapter(t, b, "--heal.from=http://"+addr, "--heal.interval=2s", "--self-scrape-interval=0s")
			configure := func(p *harness.Prometheus, isSent bool) {
				t.Helper()
				scrapes := harness.ScrapeConfig(harness.Job{Name: "prometheus", Targets: []string{p.Addr}})
				scrapes = strings.Replace(scrapes, "global:\n", "global:\n  external_labels: {cluster: c}\n", 1) + "  - job_name: out\n    static_configs: [{targets: ['127.0.0.1:1']}]\n"
				if isSent {
					r := harness.Receiver{Adapter: a, Backend: "embedded", Protocol: harness.RemoteWrite2()}
					scrapes += strings.Replace(harness.WriteConfig([]harness.Receiver{r}), "    send_exemplars: true\n", "", 1)
				}
				p.Configure(t, scrapes)
			}
			begin := harness.NowMillis()
			configure(p, true)
			p.AwaitScrapes(t, 2, begin+5000)
			newest := func(after int64) error {
				found, err := harness.Elements(a.URL("/api/v1/query"), map[string][]string{"query": {"max(timestamp(up)) > " + harness.FormatSeconds(after)}})
				if err == nil && len(found) == 0 {
					err = errors.New("nothing so new")
				}
				return err
			}
			harness.Eventually(t, "samples come", func() error { return newest(begin) })
			a.Kill(t)
			down := harness.NowMillis()
			p.AwaitScrapes(t, 2, down+3000)
			p.Terminate(t) // what it has not sent it forgets
			p = start("--web.listen-address=" + addr)
			fillAt(t, p, harness.NowMillis()-2000, 3)
			configure(p, false)
			a.Rerun(t)
			silent := harness.NowMillis()
			p.AwaitScrapes(t, 2, silent+5000)
			if n := a.Metric(t, `adapter_heal_samples_total{from="http://`+addr+`/api/v1/read"}`); n != 0 {
				t.Errorf("%v samples are read of a Prometheus that has not sent again", n)
			}
			configure(p, true)
			up := harness.NowMillis()
			p.AwaitScrapes(t, 2, up+3000)
			end := harness.NowMillis()
			harness.Eventually(t, "it sends again", func() error { return newest(end) })
			q := harness.Query{Mint: begin - 60_000, Maxt: end, Matchers: harness.MustMatchers(t, "__name__", "=~", ".+")}
			as := harness.AnswerTypes()[0]
			harness.Eventually(t, "nothing is missing", func() error {
				want := harness.MustRead(t, p.URL("/api/v1/read"), as, q)
				if diff := harness.DiffSeries(harness.MustRead(t, a.URL("/api/v1/read"), as, q), want); diff != "" || harness.CountPoints(want) < 1000 {
					return fmt.Errorf("%d samples: %s", harness.CountPoints(want), diff)
				}
				return nil
			})
			if n := a.Metric(t, `adapter_heal_samples_total{from="http://`+addr+`/api/v1/read"}`); n == 0 {
				t.Error("adapter_heal_samples_total is 0")
			}
		})
	}
}

// TestHealingTenant: what is brought is of the tenant that is named, and of the series that are chosen; what the tenant has of the same times stays.
func TestHealingTenant(t *testing.T) {
	t.Parallel()
	s := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=0s")
	a := harness.StartAdapter(t, harness.Embedded(t), "--self-scrape-interval=0s", "--tenancy", "--tenancy.create", "--heal.from=team=http://"+s.Addr, "--heal.interval=1s",
		`--heal.match={__name__=~"up|load"}`)
	now := harness.NowMillis() / 1000 * 1000
	of := func(name string, value float64, has func(ago int64) bool) harness.SentSeries {
		one := harness.SentSeries{Labels: []string{"__name__", name, "job", "j"}}
		for ago := int64(600); ago >= 10; ago -= 10 {
			if has(ago) {
				one.Points = append(one.Points, harness.PointAt(now-ago*1000, value))
			}
		}
		return one
	}
	all := func(int64) bool { return true }
	but := func(ago int64) bool { return ago < 200 || ago > 300 }
	rw := harness.RemoteWrite2()
	rw.MustSend(t, s.URL("/api/v1/write"), of("up", 1, all), of("load", 2, all), of("secret", 3, all))
	for _, tenant := range []string{"team", "other"} {
		headers := rw.Header()
		headers["X-Scope-OrgID"] = tenant
		body := rw.Encode([]harness.SentSeries{of("up", 1, but), of("load", 7, but), of("secret", 3, but)})
		if resp, err := harness.Post(t.Context(), a.URL("/api/v1/write"), headers, body); err != nil || resp.Status != http.StatusNoContent {
			t.Fatal(resp, err)
		}
	}
	// has says how many samples of each series a tenant has, by value.
	has := func(tenant string) string {
		as := harness.AnswerTypes()[0]
		q := harness.Query{Mint: now - 3600_000, Maxt: now, Matchers: harness.MustMatchers(t, "job", "=", "j")}
		req, err := harness.NewRead(t.Context(), a.URL("/api/v1/read"), as, q)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Scope-OrgID", tenant)
		resp, err := harness.Do(http.DefaultClient, req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		read, err := harness.DecodeRead(as, resp.Body, q)
		if err != nil {
			t.Fatal(err)
		}
		n := make(map[string]int)
		for _, one := range read[0] {
			for _, p := range one.Points {
				n[fmt.Sprint(one.Labels, " ", math.Float64frombits(p.Bits))]++
			}
		}
		return fmt.Sprint(n)
	}
	name := func(metric string) string { return `{__name__="` + metric + `", job="j"}` }
	want := fmt.Sprint(map[string]int{name("up") + " 1": 60, name("load") + " 7": 49, name("load") + " 2": 11, name("secret") + " 3": 49})
	harness.Eventually(t, "the gap is filled", func() error {
		if got := has("team"); got != want {
			return fmt.Errorf("there are %s, want %s", got, want)
		}
		return nil
	})
	if got, want := has("other"), fmt.Sprint(map[string]int{name("up") + " 1": 49, name("load") + " 7": 49, name("secret") + " 3": 49}); got != want {
		t.Errorf("another tenant has %s, want %s", got, want)
	}
}

// TestHealingReplica: what a replica has not sent cannot be found, as it is stored without a label of its own, and that is a failure that is said.
func TestHealingReplica(t *testing.T) {
	t.Parallel()
	p := harness.StartPrometheus(t)
	p.Configure(t, strings.Replace(harness.ScrapeConfig(harness.Job{Name: "prometheus", Targets: []string{p.Addr}}), "global:\n", "global:\n  external_labels: {cluster: c, replica: r}\n", 1))
	p.AwaitScrapes(t, 1, harness.NowMillis())
	a := harness.StartAdapter(t, harness.Embedded(t), "--heal.from="+p.URL(""), "--heal.interval=1s", "--ha.cluster-label=cluster", "--ha.replica-label=replica")
	a.WaitLine(t, "cannot bring what a sender has not sent", "without the label in which replicas differ")
	harness.Eventually(t, "it is counted", func() error {
		if a.Metric(t, `adapter_heal_failures_total{from="`+p.URL("/api/v1/read")+`"}`) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
}
