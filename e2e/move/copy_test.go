package move

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// TestCopy: while a sender writes to two adapters, the history of the first is copied to the second. Both are killed meanwhile. Then both have the
// same samples, bit for bit.
func TestCopy(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 12)
	source := startSource(t)
	firstOfAll := min(first, fill(t, source))
	histograms := snapshot(t, source)
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run("embedded to "+b.Name, func(t *testing.T) { copyBetween(t, harness.Embedded(t), b, dir, histograms, firstOfAll) })
	}
	t.Run("bttest to embedded", func(t *testing.T) {
		to := harness.Embedded(t)
		copyBetween(t, harness.InProcess(t), to, dir, histograms, firstOfAll)
		a := harness.StartAdapter(t, to)
		q := harness.Query{Mint: first, Maxt: last, Matchers: harness.MustMatchers(t, "n", "=~", "1.")}
		want, got := harness.MustRead(t, p.URL("/api/v1/read"), harness.Samples, q), harness.MustRead(t, a.URL("/read"), harness.Samples, q)
		if diff := harness.DiffSeries(got, want); diff != "" {
			t.Errorf("other than in Prometheus: %s", diff)
		}
		a.Terminate(t)
	})
}

func copyBetween(t *testing.T, from, to harness.Backend, dir, histograms string, first int64) {
	mustImport(t, from, "blocks", dir, histograms)
	a := harness.StartAdapter(t, from)
	b := harness.StartAdapter(t, to, "--web.enable-admin-api")
	var stop atomic.Bool
	sending := make(chan int64)
	begin := harness.NowMillis()
	go func() { // as Prometheus with two remote_write entries, each of which repeats what is not acknowledged
		at := begin
		for ; !stop.Load(); time.Sleep(20 * time.Millisecond) {
			at++
			series := []harness.SentSeries{harness.SeriesOf(labels.FromStrings("__name__", "live"), harness.PointAt(at, float64(at)))}
			for _, to := range []*harness.Adapter{a, b} {
				for {
					answer, err := harness.RemoteWrite2().Send(t.Context(), to.URL("/write"), series)
					if err == nil && answer.Status/100 == 2 || t.Context().Err() != nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
		sending <- at
	}()
	words := []string{"copy", "--from=" + a.URL(""), "--to=" + b.URL(""), "--start=" + harness.FormatSeconds(first), "--concurrency=1"}
	copying := harness.StartCommand(t, harness.Backend{}, words...)
	b.Kill(t)
	b.Rerun(t)
	a.Kill(t)
	a.Rerun(t)
	copying.Kill(t)
	mustRun(t, harness.Backend{}, words...)
	stop.Store(true)
	end := <-sending
	// What senders have brought to both is the same, too.
	output := mustRun(t, harness.Backend{}, append(words, "--end="+harness.FormatSeconds(end))...)
	if !strings.Contains(output, "different=0") {
		t.Errorf("a second copy:\n%s", output)
	}
	span := []string{"--start=" + harness.FormatSeconds(first), "--end=" + harness.FormatSeconds(end)}
	want := digests(t, harness.Backend{}, slices.Concat(span, []string{"--url=" + a.URL("/api/v1/read")})...)
	got := digests(t, harness.Backend{}, slices.Concat(span, []string{"--url=" + b.URL("/api/v1/read")})...)
	if !slices.Equal(got, want) || len(want) < 12 {
		t.Errorf("digests are\n%s, want\n%s", got, want)
	}
	q := harness.Query{Mint: begin, Maxt: end, Matchers: harness.MustMatchers(t, "__name__", "=", "live")}
	if n := harness.CountPoints(harness.MustRead(t, b.URL("/read"), harness.Samples, q)); int64(n) != end-begin {
		t.Errorf("%d of %d live samples", n, end-begin)
	}
	a.Terminate(t)
	b.Terminate(t)
	if code, output := harness.RunCommand(t, harness.Backend{}, words...); code == 0 || !strings.Contains(output, "ask the source") {
		t.Errorf("without a source: %d\n%s", code, output)
	}
}

// TestCopyAfterDeletion: after a deletion at the target a copy sends the samples of the series that it concerns, and after one at the source nothing,
// however often it runs: it says that both differ.
func TestCopyAfterDeletion(t *testing.T) {
	const admin = "--web.enable-admin-api"
	a, b := harness.StartAdapter(t, harness.Embedded(t), admin), harness.StartAdapter(t, harness.Embedded(t), admin)
	const series, points = 20, 500
	first := harness.NowMillis() - 10*day
	var sent []harness.SentSeries
	for i := range series {
		s := harness.SeriesOf(labels.FromStrings("__name__", "copied", "n", strconv.Itoa(i)))
		for j := range int64(points) {
			s.Points = append(s.Points, harness.PointAt(first+j*minute, float64(i)*1000+float64(j)))
		}
		sent = append(sent, s)
	}
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), sent...)
	words := []string{"copy", "--from=" + a.URL(""), "--to=" + b.URL(""), "--start=" + harness.FormatSeconds(first)}
	samples := regexp.MustCompile(`msg=copied .* samples=(\d+)`)
	copied := func(code, want int) {
		t.Helper()
		got, output := harness.RunCommand(t, harness.Backend{}, words...)
		found := samples.FindStringSubmatch(output)
		if got != code || found == nil || found[1] != strconv.Itoa(want) {
			t.Errorf("code %d, samples %v, want %d and %d:\n%s", got, found, code, want, output)
		}
	}
	remove := func(from *harness.Adapter, n string) {
		t.Helper()
		for _, path := range []string{
			"/api/v1/admin/tsdb/delete_series?" + url.Values{"match[]": {fmt.Sprintf("copied{n=%q}", n)}}.Encode(),
			"/api/v1/admin/tsdb/clean_tombstones",
		} {
			if resp, err := harness.Post(t.Context(), from.URL(path), nil, nil); err != nil || resp.Status/100 != 2 {
				t.Fatal(resp, err)
			}
		}
	}
	copied(0, series*points)
	copied(0, 0)
	remove(b, "3")
	copied(0, points)
	remove(a, "4")
	copied(1, 0)
	copied(1, 0)
	remove(b, "4")
	copied(0, 0)
	a.Terminate(t)
	b.Terminate(t)
}

// TestCopyRollups: what the source has only as rollups is copied to a target that keeps samples for as long, with metadata, and with current samples of series that
// have ended. Both answer the same. A target that still takes samples of these days is refused.
func TestCopyRollups(t *testing.T) {
	const days = 50
	retention := []string{"--retention.resolution-raw=10d", "--retention.resolution-5m=1y"}
	now := harness.NowMillis()
	first := now - days*day
	fill := func(b harness.Backend, first int64) {
		t.Helper()
		var text strings.Builder
		text.WriteString("# TYPE copied counter\n")
		for n := range 5 {
			last := now
			if n == 4 { // it has ended, within the 50 days of current samples
				last -= 3 * day
			}
			for i, at := 0, first; at < last; i, at = i+1, at+10*minute {
				fmt.Fprintf(&text, "copied_total{n=\"%d\"} %d %s\n", n, i*(n+1)%1000, harness.FormatSeconds(at))
			}
		}
		text.WriteString("# EOF\n")
		file := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		mustImport(t, b, "openmetrics", file)
	}
	kept := func(flags ...string) harness.Backend {
		return harness.Backend{Name: "embedded", Args: append([]string{"--storage.path=" + filepath.Join(t.TempDir(), "data")}, flags...)}
	}
	from, to, unbounded := kept(retention...), kept(retention...), kept()
	fill(from, first)
	fill(to, now-2*day)
	mustRun(t, from, "compact")
	mustRun(t, to, "compact")
	const admin = "--web.enable-admin-api"
	a, b, c := harness.StartAdapter(t, from), harness.StartAdapter(t, to, admin), harness.StartAdapter(t, unbounded, admin)
	described := prompb.WriteRequest{Metadata: []prompb.MetricMetadata{{Type: prompb.MetricMetadata_GAUGE, MetricFamilyName: "described", Help: "What it is.", Unit: "bytes"}}}
	body, err := described.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := harness.Post(t.Context(), a.URL("/write"), harness.RemoteWrite1().Header(), harness.Compress(body)); err != nil || resp.Status/100 != 2 {
		t.Fatal(resp, err)
	}
	// Senders make a sample a current one; an import does so only for the last day.
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(labels.FromStrings("__name__", "copied_total", "n", "4"), harness.PointAt(now-3*day, 7)))
	words := []string{"copy", "--from=" + a.URL(""), "--start=" + harness.FormatSeconds(first)}
	output := mustRun(t, harness.Backend{}, append(words, "--to="+b.URL(""))...)
	if !harness.ContainsAll(output, []string{"different=0", "current=1 ", "metadata=1 "}) {
		t.Errorf("the copy says:\n%s", output)
	}
	b.Kill(t) // what a copy has brought is durable
	b.Rerun(t)
	output = mustRun(t, harness.Backend{}, append(words, "--to="+b.URL(""))...)
	if !harness.ContainsAll(output, []string{"written=0", "different=0", "metadata=0 "}) {
		t.Errorf("a second copy says:\n%s", output)
	}
	ask := func(of *harness.Adapter, path string, params url.Values) string {
		t.Helper()
		resp := harness.MustGet(t, of.URL(path)+"?"+params.Encode(), nil)
		if resp.Status != 200 {
			t.Fatal(resp)
		}
		return resp.Body
	}
	for _, query := range []string{"increase(copied_total[1h])", "avg_over_time(copied_total[1d])", "max_over_time(copied_total[3h])", "sum(rate(copied_total[6h]))"} {
		params := url.Values{"query": {query}, "start": {strconv.FormatInt((first+2*day)/1000/86400*86400, 10)}, "end": {strconv.FormatInt(now/1000-3600, 10)}, "step": {"3600"}}
		want, got := ask(a, "/api/v1/query_range", params), ask(b, "/api/v1/query_range", params)
		if got != want || len(want) < 10_000 {
			t.Errorf("%s: %d bytes, %.300s\nwant %d, %.300s", query, len(got), got, len(want), want)
		}
	}
	current := url.Values{"match[]": {`copied_total{n="4"}`}}
	currentAt := func(of *harness.Adapter) string {
		samples, _, _ := strings.Cut(ask(of, "/api/v1/current", current), `"rowsRead"`) // one of them may have it in memory yet
		return samples
	}
	if want, got := currentAt(a), currentAt(b); got != want || !strings.Contains(want, `"n":"4"`) {
		t.Errorf("current samples are %s, want %s", got, want)
	}
	if got := ask(b, "/api/v1/metadata", nil); !harness.ContainsAll(got, []string{"What it is.", "bytes", "gauge"}) {
		t.Errorf("metadata is %s", got)
	}
	if code, output := harness.RunCommand(t, harness.Backend{}, append(words, "--to="+c.URL(""))...); code == 0 || !strings.Contains(output, "still takes samples") {
		t.Errorf("to a store that keeps samples: %d\n%s", code, output)
	}
	for _, of := range []*harness.Adapter{a, b, c} {
		of.Terminate(t)
	}
	// Into a store that this process opens itself, too.
	a = harness.StartAdapter(t, from)
	words[1] = "--from=" + a.URL("")
	if output := mustRun(t, to, words...); !harness.ContainsAll(output, []string{"written=0", "different=0"}) {
		t.Errorf("a copy without --to says:\n%s", output)
	}
	a.Terminate(t)
	if code, output := harness.RunCommand(t, to, "check"); code != 0 {
		t.Errorf("check says %d:\n%s", code, output)
	}
}
