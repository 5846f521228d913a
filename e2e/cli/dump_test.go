package cli

import (
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDump: each table is printed for people, of a store with chunks and of one with raw cells. Two stores with the same samples have the same digests, another
// sample changes that of its day.
func TestDump(t *testing.T) {
	const first = 1_795_000_000_000 // the 18th of November 2026, 11:06:40
	var digests []string
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			a := harness.StartAdapter(t, b)
			protocol := harness.RemoteWrite2()
			h, err := protocol.Histogram(0, first, tsdbutil.GenerateTestHistogram(1), nil)
			if err != nil {
				t.Fatal(err)
			}
			histograms := harness.SeriesOf(labels.FromStrings("__name__", "latency"))
			histograms.Histograms = [][]byte{h}
			protocol.MustSend(t, a.URL("/write"), harness.SeriesOf(labels.FromStrings("__name__", "up", "job", "x,y"),
				harness.PointAt(first, 1), harness.PointAt(first+1000, 2.5), harness.PointAt(first+86_400_000, 3)), histograms)
			a.Terminate(t)
			dump := func(words ...string) string {
				t.Helper()
				code, output := harness.RunCommand(t, b, append([]string{"dump"}, words...)...)
				if code != 0 {
					t.Fatalf("%d:\n%s", code, output)
				}
				return output
			}
			for _, c := range []struct {
				words, want []string
			}{
				{[]string{"--samples", "up,"}, []string{`  {__name__="up", job="x,y"}  from 20`, "2026-11-18T11:06:40.000Z  1", "2026-11-18T11:06:41.000Z  2.5"}},
				{[]string{"--samples", "latency"}, []string{`{__name__="latency"}`, "{count:21, sum:36.8"}},
				{[]string{"--table=CURRENT", "up"}, []string{"2026-11-19T11:06:40.000Z  3"}},
				{[]string{"--table=INDEX", "--limit=2"}, []string{"n,", "  from 2026-", "2 rows are printed"}},
				{[]string{"--table=META"}, []string{"schema\n", `"resource_labels":[]`}},
			} {
				if output := dump(c.words...); !harness.ContainsAll(output, c.want) {
					t.Errorf("%q: want %q in\n%s", c.words, c.want, output)
				}
			}
			if output := dump("nothing"); strings.Contains(output, "{") {
				t.Errorf("a prefix without rows:\n%s", output)
			}
			code, output := harness.RunCommand(t, b, "digest", "--match=up", "--match=latency", "--start=2026-11-01T00:00:00Z", "--end=2026-12-01T00:00:00Z")
			var days []string
			for line := range strings.Lines(output) {
				if strings.HasPrefix(line, "2026-11-") {
					days = append(days, line)
				}
			}
			if code != 0 || len(days) != 2 || !strings.HasPrefix(days[0], "2026-11-18 2 3 ") || !strings.HasPrefix(days[1], "2026-11-19 1 1 ") {
				t.Errorf("digest: %d:\n%s", code, output)
			}
			digests = append(digests, strings.Join(days, ""))
		})
	}
	for _, d := range digests {
		if d != digests[0] {
			t.Errorf("digests differ: %q", digests)
		}
	}
}
