package bigtable

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/e2e/harness"
	"github.com/promtable/promtable/series"
)

// TestDoubt: the samples of an adapter that has just started are in l, because its clock is
// in doubt, and for ten minutes more because they may overwrite such samples. Its mark
// stays until it stops, or a while after it was killed.
func TestDoubt(t *testing.T) {
	b := harness.Emulator(t)
	store := openTables(t, b)
	a := harness.StartAdapter(t, b)
	now := harness.NowMillis()
	ls := labels.FromStrings("__name__", "doubtful")
	harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), harness.SeriesOf(ls, harness.PointAt(now-60_000, 1), harness.PointAt(now, 2)))
	cells := make(map[string]int)
	request := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.PrefixRange([]byte("doubtful,"))}}
	for _, family := range series.RawFamilies {
		request.Families = append(request.Families, bucketstore.FamilyRange{Family: family})
	}
	err := store.Scan(t.Context(), request, func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			cells[c.Family]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]int{series.FamilyLate: 2}; fmt.Sprint(cells) != fmt.Sprint(want) {
		t.Errorf("cells by family are %v, want %v", cells, want)
	}
	if doubt := a.Metric(t, "adapter_clock_in_doubt"); doubt != 0 && doubt != 1 {
		t.Errorf("adapter_clock_in_doubt is %g", doubt)
	}
	want := func(what string, marks int) {
		t.Helper()
		harness.Eventually(t, what, func() error {
			if got := clockMarks(t, store); len(got) != marks {
				return fmt.Errorf("%d marks, want %d: %v", len(got), marks, got)
			}
			return nil
		})
	}
	want("running", 1)
	a.Kill(t)
	want("killed", 1)
	a.Rerun(t)
	want("running again", 2)
	a.Terminate(t)
	want("stopped", 1)
}
