package engine_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
)

func TestInventory(t *testing.T) {
	ls := func(name, machine string) labels.Labels {
		return labels.FromStrings("__name__", name, "machine", machine)
	}
	cpu1, cpu2 := sample(ls("cpu", "1"), someTime, 1), sample(ls("cpu", "2"), someTime+1, 2)
	load, mem := sample(ls("load", "1"), someTime, 3), sample(ls("a mem", "3"), someTime, 4)
	all := []ingest.Series{mem, cpu1, cpu2, load}
	name := func(name string) []*labels.Matcher { return []*labels.Matcher{match("__name__", name)} }
	tests := []struct {
		name      string
		selectors [][]*labels.Matcher
		limit     int
		want      []ingest.Series
		truncated bool
		rows      int // in the table
	}{
		{"everything", nil, 10, all, false, 5},
		{"as many as there are", nil, 4, all, false, 5},
		{"fewer", nil, 2, all[:2], true, 3},
		{"none", nil, 0, nil, true, 1},
		{"a name", [][]*labels.Matcher{name("cpu")}, 10, all[1:3], false, 3},
		{"a name twice", [][]*labels.Matcher{name("cpu"), append(name("cpu"), match("machine", "1"))}, 10, all[1:3], false, 3},
		{"two names", [][]*labels.Matcher{name("cpu"), name("load")}, 10, all[1:], false, 5},
		{"a label", [][]*labels.Matcher{{match("machine", "1")}}, 10, []ingest.Series{cpu1, load}, false, 5},
		{"no name", [][]*labels.Matcher{name("")}, 10, nil, false, 5},
		{"nothing", [][]*labels.Matcher{name("nothing")}, 10, nil, false, 0},
	}
	for _, from := range []string{"memory", "both", "table"} {
		f := openFixture(t)
		f.append(t, cpu2, sample(ls("cpu", "1"), someTime-1, 7), sample(ls("cpu", "gone"), someTime, stale))
		if from == "both" {
			f.reopen(t)
		}
		f.append(t, cpu1, load, mem)
		if from == "table" {
			f.reopen(t)
		}
		for _, tt := range tests {
			t.Run(tt.name+"/"+from, func(t *testing.T) {
				f.store.reset()
				var found []ingest.Series
				seen, err := f.Inventory(t.Context(), tt.selectors, tt.limit, func(s current.Sample) error {
					found = append(found, sample(s.Labels, s.T, s.V))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				wantSeries(t, "inventory", found, tt.want...)
				if seen.Truncated != tt.truncated || (from == "table" && seen.Rows != tt.rows) {
					t.Errorf("%+v, want truncated %v and %d rows", seen, tt.truncated, tt.rows)
				}
				for table := range bucketstore.NumTables {
					if n := len(f.store.scans(table)); (table == bucketstore.Current) != (n == 1) {
						t.Errorf("%d scans of %s", n, table)
					}
				}
			})
		}
	}
}

// A pass ends with the first error, of the store or of the function that takes the samples.
func TestInventoryFails(t *testing.T) {
	f := openFixture(t)
	for i := range 3 {
		f.append(t, sample(labels.FromStrings("__name__", fmt.Sprint("m", i)), someTime, 1))
	}
	wanted, calls := errors.New("the client has gone"), 0
	_, err := f.Inventory(t.Context(), nil, 10, func(current.Sample) error {
		calls++
		return wanted
	})
	if !errors.Is(err, wanted) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
