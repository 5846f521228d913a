package move

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/e2e/harness"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
	day    = 24 * hour
)

// fill writes some hours of samples up to now to a Prometheus: floats, staleness markers and histograms of all kinds. It returns the
// time of the first.
func fill(t *testing.T, p *harness.Prometheus) (first int64) {
	t.Helper()
	now := harness.NowMillis()
	steps := 9 * hour / minute
	first = now - (steps-1)*minute
	for n := range steps {
		fillAt(t, p, first+n*minute, n)
	}
	return first
}

// fillAt writes the n-th samples of all series at a time.
func fillAt(t *testing.T, p *harness.Prometheus, at, n int64) {
	t.Helper()
	protocol := harness.RemoteWrite2()
	var batch []harness.SentSeries
	for i := range 10 {
		s := harness.SeriesOf(labels.FromStrings("__name__", "requests_total", "job", "move", "n", fmt.Sprint(i)), harness.PointAt(at+int64(i), float64(n%200)*float64(i)/3))
		if i == 3 && n%100 == 99 {
			s.Points = []harness.Point{{T: at + int64(i), Bits: value.StaleNaN}}
		}
		batch = append(batch, s)
	}
	for i, kind := range []string{"integer", "float", "gauge", "custom"} {
		var h []byte
		var err error
		switch kind {
		case "integer":
			h, err = protocol.Histogram(0, at, tsdbutil.GenerateTestHistogram(n%200), nil)
		case "float":
			h, err = protocol.Histogram(0, at, nil, tsdbutil.GenerateTestFloatHistogram(n))
		case "gauge":
			h, err = protocol.Histogram(0, at, tsdbutil.GenerateTestGaugeHistogram(n), nil)
		default:
			h, err = protocol.Histogram(0, at, tsdbutil.GenerateTestCustomBucketsHistogram(n), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		ls := labels.FromStrings("__name__", "duration_seconds", "kind", kind, "n", fmt.Sprint(i))
		s := harness.SeriesOf(ls)
		s.Histograms = [][]byte{h}
		batch = append(batch, s)
	}
	protocol.MustSend(t, p.URL("/api/v1/write"), batch...)
}

func startSource(t *testing.T) *harness.Prometheus {
	t.Helper()
	return startSourceOn(t, filepath.Join(t.TempDir(), "data"))
}

// startSourceOn is startSource with the blocks that are in the directory data.
func startSourceOn(t *testing.T, data string) *harness.Prometheus {
	t.Helper()
	return harness.StartPrometheusOn(t, data, "--web.enable-admin-api", "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=10y")
}

// snapshot returns the directory of a snapshot of all that a Prometheus has.
func snapshot(t *testing.T, p *harness.Prometheus) string {
	t.Helper()
	resp, err := harness.Post(t.Context(), p.URL("/api/v1/admin/tsdb/snapshot"), nil, nil)
	var answer struct{ Data struct{ Name string } }
	if err == nil {
		err = json.Unmarshal([]byte(resp.Body), &answer)
	}
	if err != nil || answer.Data.Name == "" {
		t.Fatalf("%v, %v", resp, err)
	}
	return filepath.Join(p.Data(), "snapshots", answer.Data.Name)
}

// wantSame wants an adapter to have all samples of Prometheus in [mint, maxt], bit for bit, and the same results of queries.
func wantSame(t *testing.T, a *harness.Adapter, p *harness.Prometheus, mint, maxt int64) {
	t.Helper()
	q := harness.Query{Mint: mint, Maxt: maxt, Matchers: harness.MustMatchers(t, "__name__", "=~", ".+")}
	for _, as := range harness.AnswerTypes() {
		want := harness.MustRead(t, p.URL("/api/v1/read"), as, q)
		got := harness.MustRead(t, a.URL("/read"), as, q)
		if diff := harness.DiffSeries(got, want); diff != "" || harness.CountPoints(want) < 1000 {
			t.Fatalf("%d samples in %v: %s", harness.CountPoints(want), as, diff)
		}
	}
	for _, expr := range []string{`{__name__=~".+"}[1d]`, `rate({__name__=~"requests_total|duration_seconds",kind!="gauge"}[10m])`} {
		for at := mint + hour; at <= maxt; at += (maxt - mint) / 4 {
			var both [2][]string
			for i, base := range []string{a.URL("/api/v1/query"), p.URL("/api/v1/query")} {
				both[i] = harness.MustElements(t, base, url.Values{"query": {expr}, "time": {harness.FormatSeconds(at)}})
			}
			if err := harness.SameElements(both[0], both[1], nil); err != nil {
				t.Fatalf("%s at %d: %v", expr, at, err)
			}
		}
	}
}

// mustImport runs import to its end, and returns what it printed.
func mustImport(t *testing.T, b harness.Backend, words ...string) string {
	t.Helper()
	code, output := harness.RunCommand(t, b, append([]string{"import"}, words...)...)
	if code != 0 {
		t.Fatalf("import %q: %d\n%s", words, code, output)
	}
	return output
}

// mutations returns the number of row mutations that an import has printed.
func mutations(t *testing.T, output string) string {
	t.Helper()
	m := regexp.MustCompile(`import(?:ed)? (\d+ samples \(\d+ histograms\)).* in (\d+ row mutations)`).FindStringSubmatch(output)
	if m == nil {
		t.Fatalf("no mutations in\n%s", output)
	}
	return m[1] + m[2]
}

// TestImportSnapshot: what a snapshot of Prometheus has is there after an import, on each backend; a dry run has said what it costs.
func TestImportSnapshot(t *testing.T) {
	p := startSource(t)
	first := fill(t, p)
	last := harness.NowMillis()
	dir := snapshot(t, p)
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			words := []string{"blocks", dir, "--concurrency=1"}
			dry := mutations(t, mustImport(t, b, append(words, "--dry-run")...))
			if got := mutations(t, mustImport(t, b, words...)); got != dry {
				t.Errorf("imported %s, the dry run said %s", got, dry)
			}
			if output := mustImport(t, b, words...); !strings.Contains(output, "nothing to do") {
				t.Errorf("again:\n%s", output)
			}
			a := harness.StartAdapter(t, b)
			wantSame(t, a, p, first, last)
			a.Terminate(t)
		})
	}
}

// openMetrics makes blocks of days of samples with promtool, and returns their directory and a Prometheus that has them.
func openMetrics(t *testing.T, days int) (dir string, p *harness.Prometheus, text string, first, last int64) {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("# TYPE requests counter\n")
	last = harness.NowMillis()/hour*hour - 4*hour
	first = last - int64(days)*day
	for n := range 20 {
		for at, i := first, 0; at <= last; at, i = at+5*minute, i+1 {
			fmt.Fprintf(&b, "requests_total{n=\"%d\"} %v %s\n", n, float64(i%300)+math.Floor(float64(n*100)/7)/100, harness.FormatSeconds(at))
		}
	}
	b.WriteString("# EOF\n")
	text = filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "data")
	createBlocks(t, text, dir)
	return dir, startSourceOn(t, dir), text, first, last
}

// createBlocks makes blocks of 18 hours of a file with text. For each block promtool reads all of it.
func createBlocks(t *testing.T, text, dir string) {
	t.Helper()
	harness.CreateBlocks(t, text, dir, "--max-block-duration=18h")
}

// TestImportStopped: an import that is killed, or stopped by Ctrl-C, goes on where it was, and all is there once.
func TestImportStopped(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 20)
	b := harness.Embedded(t)
	words := []string{"import", "blocks", dir, "--concurrency=1", "--samples-per-second=20000", "--log.level=debug"}
	for _, stop := range []func(*harness.Process, testing.TB){(*harness.Process).Kill, (*harness.Process).InterruptUndone} {
		p := harness.StartCommand(t, b, words...)
		p.WaitLine(t, "imported a part", "finished=2")
		stop(p, t)
	}
	output := mustImport(t, b, words[1:]...)
	m := regexp.MustCompile(`(\d+) parts were imported before`).FindStringSubmatch(output)
	if m == nil {
		t.Fatalf("nothing was imported before:\n%s", output)
	}
	if before, err := strconv.Atoi(m[1]); err != nil || before < 4 {
		t.Errorf("what was imported before is imported again:\n%s", output)
	}
	// Another match is another import. It writes the same samples, as the same chunks.
	mustImport(t, b, "blocks", dir, "--match=requests_total")
	a := harness.StartAdapter(t, b)
	wantSame(t, a, p, first, last)
	a.Terminate(t)
}

// TestImportDamage: what cannot be read is named, all else is imported, and the next import brings what is there by then.
func TestImportDamage(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 7)
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	blocks, err := filepath.Glob(filepath.Join(copied, "01*"))
	if err != nil || len(blocks) < 8 {
		t.Fatal(blocks, err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	flip := func(file string) {
		t.Helper()
		data, err := os.ReadFile(file)
		must(err)
		data[len(data)/2] ^= 0xff
		must(os.WriteFile(file, data, 0o600))
	}
	flip(filepath.Join(blocks[0], "chunks", "000001"))
	must(os.Remove(filepath.Join(blocks[1], "index")))
	must(os.Remove(filepath.Join(blocks[2], "meta.json")))
	must(os.Rename(blocks[3], blocks[3]+".tmp-for-creation"))
	must(os.WriteFile(filepath.Join(blocks[4], "meta.json"), []byte("{"), 0o600))
	must(os.CopyFS(filepath.Join(copied, "twice", filepath.Base(blocks[5])), os.DirFS(blocks[5])))

	b := harness.Embedded(t)
	code, output := harness.RunCommand(t, b, "import", "blocks", copied, filepath.Join(copied, "twice"))
	if code != 1 || !harness.ContainsAll(output, []string{
		"checksum mismatch", filepath.Base(blocks[0]), "is damaged, or gone", "has no meta.json", "is being written or removed", "has a damaged meta.json",
		"is the same block as", "parts of the source could not be read",
	}) {
		t.Errorf("%d:\n%s", code, output)
	}
	mustImport(t, b, "blocks", dir)
	a := harness.StartAdapter(t, b)
	wantSame(t, a, p, first, last)
	a.Terminate(t)

	for _, refused := range []string{t.TempDir(), filepath.Join(dir, "wal")} {
		if code, output := harness.RunCommand(t, b, "import", "blocks", refused); code != 1 || !strings.Contains(output, "has no blocks") {
			t.Errorf("%d:\n%s", code, output)
		}
	}
}

// TestImportTimes: what is not kept, and what is not asked for, is left out.
func TestImportTimes(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 12)
	b := harness.Embedded(t)
	// Without rollups the cut is that of the clock.
	args := append(slices.Clone(b.Args), "--retention.resolution-raw=5d", "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	output := mustImport(t, harness.Backend{Args: args}, "blocks", dir, "--match=requests_total", "--start="+harness.FormatSeconds(first+day), "--end="+harness.FormatSeconds(last-2*day))
	if !strings.Contains(output, "are before what is kept") {
		t.Errorf("what is too old:\n%s", output)
	}
	a := harness.StartAdapter(t, harness.Backend{Args: args})
	wantSame(t, a, p, harness.NowMillis()-4*day+hour, last-2*day) // [1d] begins a day earlier
	if got := harness.MustRead(t, a.URL("/read"), harness.Samples, harness.Query{Mint: last - 2*day + 1, Maxt: last, Matchers: harness.MustMatchers(t, "__name__", "=", "requests_total")}); harness.CountPoints(got) > 0 {
		t.Errorf("%d samples after --end", harness.CountPoints(got))
	}
	a.Terminate(t)
}

// TestImportRunning: a running adapter takes blocks by HTTP, beside what senders write, whose samples win. It is killed in the middle, and
// the import goes on when it is there again.
func TestImportRunning(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 10)
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			a := harness.StartAdapter(t, b, "--web.enable-admin-api")
			live := harness.SeriesOf(labels.FromStrings("__name__", "requests_total", "n", "0"), harness.PointAt(last, -1))
			harness.RemoteWrite2().MustSend(t, a.URL("/write"), live)
			words := []string{"import", "blocks", dir, "--url=" + a.URL("/"), "--samples-per-second=20000", "--log.level=debug"}
			importing := harness.StartCommand(t, harness.Backend{}, words...)
			importing.WaitLine(t, "imported a part", "finished=1")
			a.Kill(t)
			a.Rerun(t)
			importing.WaitLine(t, "row mutations")
			importing.Wait(t)
			if output := mustImport(t, harness.Backend{}, words[1:]...); !strings.Contains(output, "nothing to do") {
				t.Errorf("again:\n%s", output)
			}
			q := harness.Query{Mint: last, Maxt: last, Matchers: harness.MustMatchers(t, "n", "=", "0")}
			if got := harness.MustRead(t, a.URL("/read"), harness.Samples, q); len(got) != 1 || got[0].Points[0] != live.Points[0] {
				t.Errorf("the sample of the sender is %v", got)
			}
			wantSame(t, a, p, first, last-1)
			a.Terminate(t)
		})
	}
	a := harness.StartAdapter(t, harness.Embedded(t))
	if code, output := harness.RunCommand(t, harness.Backend{}, "import", "blocks", dir, "--url="+a.URL("")); code != 1 || !strings.Contains(output, "is no adapter with --web.enable-admin-api") {
		t.Errorf("%d:\n%s", code, output)
	}
}

// TestImportText: OpenMetrics text gives the samples that promtool makes of it, and a text that is cut off gives none.
func TestImportText(t *testing.T) {
	_, p, text, first, last := openMetrics(t, 9)
	b := harness.Embedded(t)
	whole, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"does not end with # EOF": whole[:bytes.LastIndexByte(whole[:len(whole)/2], '\n')+1],
		"has no timestamp":        []byte("# TYPE a gauge\na 1\n# EOF\n"),
		"it is empty":             {},
		"has no samples":          []byte("# EOF\n"),
	} {
		file := filepath.Join(t.TempDir(), "text")
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if code, output := harness.RunCommand(t, b, "import", "openmetrics", file); code != 1 || !strings.Contains(output, name) {
			t.Errorf("want %q: %d\n%s", name, code, output)
		}
	}
	mustImport(t, b, "openmetrics", text)
	if output := mustImport(t, b, "openmetrics", text); !strings.Contains(output, "nothing to do") {
		t.Errorf("again:\n%s", output)
	}
	a := harness.StartAdapter(t, b)
	wantSame(t, a, p, first, last)
	a.Terminate(t)

	// One line twice, in a file that is compressed: promtool takes it, too.
	last1 := bytes.LastIndexByte(bytes.TrimSuffix(whole, []byte("\n# EOF\n")), '\n') + 1
	twice := slices.Concat(whole[:len(whole)-len("# EOF\n")], whole[last1:])
	packed := filepath.Join(t.TempDir(), "text.gz")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	w.Write(twice)
	if err := errors.Join(w.Close(), os.WriteFile(packed, zipped.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	again := harness.Embedded(t)
	mustImport(t, again, "openmetrics", packed)
	a = harness.StartAdapter(t, again)
	wantSame(t, a, p, first, last)
	a.Terminate(t)
}

// TestImportRead: what a Prometheus answers to remote read is there after an import, histograms and staleness markers among it, and what
// an adapter answers is there in another one.
func TestImportRead(t *testing.T) {
	p := startSource(t)
	first := fill(t, p)
	last := harness.NowMillis()
	from := p.URL("/api/v1/read")
	words := func(from string) []string {
		return []string{"remote-read", from, "--start=" + harness.FormatSeconds(first), "--end=" + harness.FormatSeconds(last), "--match={n=~'[0-4]'}", "--match={n!~'[0-4]'}"}
	}
	for range 2 {
		b := harness.Embedded(t)
		mustImport(t, b, words(from)...)
		// The source may have got older samples since, so all is read again.
		if output := mustImport(t, b, words(from)...); strings.Contains(output, "nothing to do") {
			t.Errorf("again:\n%s", output)
		}
		a := harness.StartAdapter(t, b)
		wantSame(t, a, p, first, last)
		from = a.URL("/api/v1/read")
	}
	if code, output := harness.RunCommand(t, harness.Embedded(t), "import", "remote-read", from); code != 1 || !strings.Contains(output, "--start is missing") {
		t.Errorf("%d:\n%s", code, output)
	}
}

// TestImportRolled: of days whose samples have gone, rollups come in. They answer as Prometheus does from samples, and they stay when
// the same days are imported again.
func TestImportRolled(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 14)
	b := harness.Embedded(t)
	b.Args = append(b.Args, "--retention.resolution-raw=5d", "--web.enable-admin-api")
	mustImport(t, b, "blocks", dir, `--match={n="0"}`)
	a := harness.StartAdapter(t, b)
	a.WaitLine(t, "made rollups")
	a.Terminate(t)
	a = harness.StartAdapter(t, b) // at a start samples go whose rollups are there
	var cut int64
	harness.Eventually(t, "samples go", func() error {
		// Not all go at once.
		if cut = int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds")) * 1000; cut < harness.NowMillis()-6*day {
			return fmt.Errorf("samples are kept from %d on", cut)
		}
		return nil
	})
	for _, match := range []string{`--match={n!="0"}`, `--match={n=~"1.*"}`} {
		output := mustImport(t, harness.Backend{}, "blocks", dir, match, "--url="+a.URL(""))
		again := strings.Contains(output, "had rollups already, which stay")
		if !strings.Contains(output, "they are there as rollups") || again != strings.Contains(match, "~") {
			t.Errorf("%s:\n%s", match, output)
		}
		checked := 0
		for at := first/day*day + 2*day; at <= last; at += 6 * hour {
			for _, expr := range []string{"rate(requests_total[1d])", "max_over_time(requests_total[3h])", "count_over_time(requests_total[1h])", "last_over_time(requests_total[6h])"} {
				params := url.Values{"query": {expr}, "time": {harness.FormatSeconds(at)}}
				got, want := harness.MustElements(t, a.URL("/api/v1/query"), params), harness.MustElements(t, p.URL("/api/v1/query"), params)
				if err := harness.SameElements(got, want, nil); err != nil || len(want) != 20 {
					t.Fatalf("%s at %d, samples from %d on, of %d series: %v", expr, at, cut, len(want), err)
				}
			}
			if at <= cut {
				checked++
			}
		}
		if checked < 10 {
			t.Errorf("%d times before %d", checked, cut)
		}
	}
	// Samples that are kept as rollups alone are not missing, so they are not compared, and all after them is.
	for start, want := range map[int64]string{cut - day: "the store takes only rollups, which are not compared", cut + day + hour: "samples of "} {
		code, output := harness.RunCommand(t, harness.Backend{}, "heal", "--from="+p.URL(""), "--url="+a.URL(""), "--dry-run", "--start="+harness.FormatSeconds(start))
		if !strings.Contains(output, want) || (code == 0) != (start > cut) {
			t.Errorf("heal from %d on, cut at %d: %d\n%s", start, cut, code, output)
		}
	}
	a.Kill(t)
	a.Rerun(t)
	wantSame(t, a, p, cut+day+hour, last)
	a.Terminate(t)
	if code, output := harness.RunCommand(t, harness.Backend{Args: b.Args[:1]}, "check"); code != 0 {
		t.Errorf("check says %d:\n%s", code, output)
	}
}
