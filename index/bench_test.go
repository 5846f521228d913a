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
	x := index.New(index.Config{}, nowhere{})
	b.ReportAllocs()
	var entries []index.Entry
	for i := 0; b.Loop(); i++ {
		if entries = append(entries, nodeSeries(b, i)); len(entries) < 500 {
			continue
		}
		mustWrite(b, x, entries...)
		entries = entries[:0]
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
