package index_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// nowhere is a table that keeps nothing.
type nowhere struct{}

func (nowhere) PutRows(context.Context, []index.Row) error { return nil }

func (nowhere) ScanRows(context.Context, []series.RowRange, int, func(key, value []byte) error) error {
	return nil
}

// nodeSeries is a series as the node exporter has them: i is its number.
func nodeSeries(b *testing.B, i int) index.Entry {
	return entry(b, 1300000000000,
		"__name__", fmt.Sprint("node_cpu_seconds_total", i/1000), "cpu", fmt.Sprint(i%8), "env", "production",
		"instance", fmt.Sprintf("10.0.%d.%d:9100", i/256%256, i%256), "job", "node", "mode", fmt.Sprint("mode", i/8%8), "serial", fmt.Sprint(i))
}

func BenchmarkWriteSteadyState(b *testing.B) {
	x := index.New(index.Config{}, nowhere{})
	var entries []index.Entry
	for i := range 2000 {
		entries = append(entries, nodeSeries(b, i))
	}
	mustWrite(b, x, entries...)
	b.ReportAllocs()
	for b.Loop() {
		mustWrite(b, x, entries...)
	}
}

// BenchmarkWriteAfterRestart looks up 100,000 series, 2,000 in a request.
func BenchmarkWriteAfterRestart(b *testing.B) {
	tab := newTable(b)
	tab.countOnly = true
	var entries []index.Entry
	for i := range 100_000 {
		entries = append(entries, entry(b, 1300000000000, "__name__", "up", "instance", fmt.Sprint(i)))
	}
	mustWrite(b, index.New(index.Config{}, tab), entries...)
	b.ReportAllocs()
	for b.Loop() {
		x := index.New(index.Config{}, tab)
		for request := range slices.Chunk(entries, 2000) {
			mustWrite(b, x, request...)
		}
	}
}

// BenchmarkWriteNew writes new series, 500 at a time. One
// operation is one series, making its labels and key included.
func BenchmarkWriteNew(b *testing.B) {
	for _, exclusive := range []bool{false, true} {
		b.Run(fmt.Sprintf("memory=%v", exclusive), func(b *testing.B) {
			x := index.New(index.Config{Exclusive: exclusive}, nowhere{})
			q := index.Query{Start: 1300000000000, Limit: 1300000000001}
			for _, name := range []string{"__name__", "cpu", "env", "instance", "job", "mode", "serial"} { // lists, if there is memory
				q.Matchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, name, "")}
				mustSelect(b, x, q)
			}
			q.Matchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "job", "node")}
			mustSelect(b, x, q)
			b.ReportAllocs()
			var entries []index.Entry
			for i := 0; b.Loop(); i++ {
				if entries = append(entries, nodeSeries(b, i)); len(entries) < 500 {
					continue
				}
				mustWrite(b, x, entries...)
				entries = entries[:0]
			}
		})
	}
}

func BenchmarkSelect(b *testing.B) {
	tab := newTable(b)
	tab.countOnly = true
	x := index.New(index.Config{}, tab)
	for from := 0; from < 10_000; from += 1000 {
		var entries []index.Entry
		for i := range 1000 {
			entries = append(entries, nodeSeries(b, from+i))
		}
		mustWrite(b, x, entries...)
	}
	q := index.Query{Start: 1300000000000, Limit: 1300000000001, Matchers: []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "job", "node"),
		labels.MustNewMatcher(labels.MatchRegexp, "mode", "mode[12]"),
		labels.MustNewMatcher(labels.MatchRegexp, "instance", "10\\.0\\.1\\..*"),
	}}
	if found := len(mustSelect(b, x, q).Series); found == 0 {
		b.Fatal("nothing found")
	}
	b.ReportAllocs()
	for b.Loop() {
		mustSelect(b, x, q)
	}
}

// BenchmarkSelectOne finds one series by four labels, as a dashboard does.
func BenchmarkSelectOne(b *testing.B) {
	for _, exclusive := range []bool{false, true} {
		b.Run(fmt.Sprintf("memory=%v", exclusive), func(b *testing.B) {
			tab := newTable(b)
			tab.countOnly = true
			x := index.New(index.Config{Exclusive: exclusive}, tab)
			var entries []index.Entry
			for i := range 10_000 {
				entries = append(entries, nodeSeries(b, i))
			}
			mustWrite(b, x, entries...)
			q := index.Query{Start: 1300000000000, Limit: 1300000000001, MaxSeries: 500_000, Matchers: []*labels.Matcher{
				labels.MustNewMatcher(labels.MatchEqual, "__name__", "node_cpu_seconds_total3"),
				labels.MustNewMatcher(labels.MatchEqual, "instance", "10.0.12.9:9100"),
				labels.MustNewMatcher(labels.MatchRegexp, "mode", "mode[0-7]"),
				labels.MustNewMatcher(labels.MatchEqual, "job", "node"),
			}}
			if found := len(mustSelect(b, x, q).Series); found != 1 {
				b.Fatal(found, "series found")
			}
			b.ReportAllocs()
			for b.Loop() {
				mustSelect(b, x, q)
			}
		})
	}
}

// BenchmarkMillion asks about a million series of one metric, all in memory.
func BenchmarkMillion(b *testing.B) {
	const count = 1_000_000
	x := index.New(index.Config{Exclusive: true, MaxMemory: 4 << 30}, nowhere{})
	q := index.Query{Start: 1300000000000, Limit: 1300000000001, Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "http_requests_total")}}
	mustSelect(b, x, q) // the list is there, and gets what is written
	all := q
	all.Matchers = nil
	for _, name := range []string{"__name__", "code", "id", "job", "instance", "method"} {
		if _, err := x.Values(b.Context(), name, all); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := x.Names(b.Context(), all); err != nil {
		b.Fatal(err)
	}
	if _, err := x.Cardinality(b.Context(), index.CountQuery{Time: q.Start, Top: 10}); err != nil {
		b.Fatal(err)
	}
	for n := range 4 {
		mustSelect(b, x, index.Query{Start: q.Start, Limit: q.Limit, Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "job", fmt.Sprint("job", n))}})
	}
	var entries []index.Entry
	for i := range count {
		entries = append(entries, entry(b, q.Start, "__name__", "http_requests_total", "cluster", "europe-west1", "code", fmt.Sprint(200+i%7), "container", "server",
			"env", "production", "handler", "/api/v1/items", "id", fmt.Sprint(i), "instance", fmt.Sprint("10.1.", i/500, ":9100"), "job", fmt.Sprint("job", i%4), "method", "GET", "zone", fmt.Sprint("z", i%3)))
		if len(entries) == 2000 {
			mustWrite(b, x, entries...)
			entries = entries[:0]
		}
	}
	everyJob := q
	everyJob.Matchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "job", ".+")}
	limited := q
	limited.Enough = 100
	two := q
	two.Matchers = append(slices.Clone(q.Matchers), labels.MustNewMatcher(labels.MatchEqual, "zone", "z1"))
	for _, bench := range []struct {
		name string
		ask  func() error
	}{
		{"values with match and limit", func() error { _, err := x.Values(b.Context(), "id", limited); return err }},
		{"few values with match", func() error { _, err := x.Values(b.Context(), "code", q); return err }},
		{"few values with match and limit", func() error { _, err := x.Values(b.Context(), "code", limited); return err }},
		{"few values with two matchers", func() error { _, err := x.Values(b.Context(), "code", two); return err }},
		{"absent value with match", func() error { _, err := x.Values(b.Context(), "absent", q); return err }},
		{"2,000 values with match", func() error { _, err := x.Values(b.Context(), "instance", q); return err }},
		{"names with match", func() error { _, err := x.Names(b.Context(), q); return err }},
		{"series with limit", func() error { _, err := x.Select(b.Context(), limited); return err }},
		{"all series of a label", func() error { _, err := x.Select(b.Context(), everyJob); return err }},
		{"all series", func() error { _, err := x.Select(b.Context(), q); return err }},
		{"counts", func() error {
			_, err := x.Cardinality(b.Context(), index.CountQuery{Time: q.Start, Top: 10})
			return err
		}},
		{"counts after a write", func() error {
			mustWrite(b, x, entry(b, q.Start, "__name__", "new", "id", fmt.Sprint(b.N)))
			_, err := x.Cardinality(b.Context(), index.CountQuery{Time: q.Start, Top: 10})
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			if err := bench.ask(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
