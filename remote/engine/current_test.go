package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

var (
	up    = labels.FromStrings("__name__", "up")
	stale = math.Float64frombits(value.StaleNaN)
)

func sample(ls labels.Labels, t int64, v float64) ingest.Series {
	return ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: t, V: v}}}
}

func TestCurrentLatestWins(t *testing.T) {
	tests := []struct {
		name    string
		samples []ingest.Sample
		want    []ingest.Series
	}{
		{"in order", []ingest.Sample{{T: someTime, V: 1}, {T: someTime + 1, V: 2}}, []ingest.Series{sample(up, someTime+1, 2)}},
		{"out of order", []ingest.Sample{{T: someTime + 1, V: 2}, {T: someTime, V: 1}}, []ingest.Series{sample(up, someTime+1, 2)}},
		{"equal times", []ingest.Sample{{T: someTime, V: 1}, {T: someTime, V: 2}}, []ingest.Series{sample(up, someTime, 2)}},
		{"minus zero", []ingest.Sample{{T: someTime, V: math.Copysign(0, -1)}}, []ingest.Series{sample(up, someTime, math.Copysign(0, -1))}},
		{"a NaN that is not stale", []ingest.Sample{{T: someTime, V: math.NaN()}}, []ingest.Series{sample(up, someTime, math.NaN())}},
		{"stale", []ingest.Sample{{T: someTime, V: 1}, {T: someTime + 1, V: stale}}, nil},
		{"back again", []ingest.Sample{{T: someTime, V: stale}, {T: someTime + 1, V: 1}}, []ingest.Series{sample(up, someTime+1, 1)}},
		{"stale, then older", []ingest.Sample{{T: someTime + 1, V: stale}, {T: someTime, V: 1}}, nil},
	}
	for _, tt := range tests {
		for _, between := range []string{"nothing", "a flush"} {
			t.Run(tt.name+"/"+between, func(t *testing.T) {
				f := openFixture(t)
				for _, s := range tt.samples {
					f.append(t, ingest.Series{Labels: up, Samples: []ingest.Sample{s}})
					if between == "a flush" {
						f.reopen(t)
					}
				}
				wantSeries(t, "in memory", f.current(t, 0), tt.want...)
				f.reopen(t)
				wantSeries(t, "in the table", f.current(t, 0), tt.want...)
			})
		}
	}
}

// The same, with a real client and its cells. The fake drops old cells by its own clock. If
// older cells are deleted a row keeps one version, or two until the next write if an older
// sample came late.
func TestCurrentOnBigtable(t *testing.T) {
	for _, keepsVersions := range []bool{false, true} {
		t.Run(fmt.Sprint(keepsVersions), func(t *testing.T) {
			now := time.Now().UnixMilli()
			store := storetest.NewVersions(storetest.WithTraits(bigtabletest.Open(t), func(t *bucketstore.Traits) { t.KeepsVersions = keepsVersions }))
			f := openOn(t, store, newClock(now))
			want := func(what string, versions int, want ingest.Series) {
				t.Helper()
				wantSeries(t, what, f.current(t, 0), want)
				if got := store.Most(bucketstore.Current); keepsVersions && got != versions {
					t.Errorf("%s: %d versions, want %d", what, got, versions)
				}
			}
			f.append(t, sample(up, now, 1))
			f.reopen(t)
			f.append(t, sample(up, now-1, 2))
			want("memory is older", 1, sample(up, now, 1))
			f.reopen(t)
			want("the older came last", 2, sample(up, now, 1))
			f.append(t, sample(up, now, 3))
			f.reopen(t)
			want("equal times", 1, sample(up, now, 3))
			for i := int64(1); i < 10; i++ {
				f.append(t, sample(up, now+i, float64(i)))
				f.reopen(t)
				want("newer", 1, sample(up, now+i, float64(i)))
			}
			if got := store.Most(bucketstore.Current); !keepsVersions && got != 11 {
				t.Errorf("%d versions if none is deleted, want 11", got)
			}
		})
	}
}

func TestCurrentSelects(t *testing.T) {
	f := openFixture(t)
	a := sample(labels.FromStrings("__name__", "b_total", "A", "first label", "job", "a"), someTime, 1)
	b := sample(labels.FromStrings("__name__", "a_total", "job", "b"), someTime+1, 2)
	c := sample(labels.FromStrings("__name__", "a_total", "job", "a"), someTime+2, 3)
	old := sample(labels.FromStrings("__name__", "a_total", "job", "old"), someTime-1, 4)
	f.append(t, a, b, c, old)
	selector := func(name, value string) []*labels.Matcher { return []*labels.Matcher{match(name, value)} }
	tests := []struct {
		name      string
		mint      int64
		selectors [][]*labels.Matcher
		want      []ingest.Series
	}{
		{"everything", someTime, [][]*labels.Matcher{nil}, []ingest.Series{c, b, a}},
		{"older than the lookback", someTime - 1, [][]*labels.Matcher{nil}, []ingest.Series{c, b, old, a}},
		{"inclusive", someTime + 1, [][]*labels.Matcher{nil}, []ingest.Series{c, b}},
		{"several selectors", someTime, [][]*labels.Matcher{selector("job", "a"), selector("__name__", "a_total"), selector("job", "a")}, []ingest.Series{c, b, a}},
		{"no match", someTime, [][]*labels.Matcher{selector("job", "c")}, nil},
		{"no selector", someTime, [][]*labels.Matcher{}, nil},
	}
	for _, from := range []string{"memory", "table"} {
		if from == "table" {
			f.reopen(t)
		}
		for _, tt := range tests {
			t.Run(tt.name+"/"+from, func(t *testing.T) {
				samples, err := f.Current(t.Context(), tt.selectors, tt.mint)
				if err != nil {
					t.Fatal(err)
				}
				var found []ingest.Series
				for _, s := range samples {
					found = append(found, sample(s.Labels, s.T, s.V))
				}
				wantSeries(t, "current", found, tt.want...)
			})
		}
	}
}

// Many samples of a series are one row.
func TestCurrentIsCoalesced(t *testing.T) {
	f := openFixture(t)
	for i := range int64(20) {
		f.append(t, sample(up, someTime+i, float64(i)), sample(labels.FromStrings("__name__", "down"), someTime+i, 0))
	}
	if n := f.store.rows(bucketstore.Current); n != 0 {
		t.Errorf("%d rows of CURRENT before the interval is over", n)
	}
	if n := f.counter(t, "adapter_current_pending_series"); n != 2 {
		t.Errorf("%v series pending, want 2", n)
	}
	f.close(t)
	if n := f.store.rows(bucketstore.Current); n != 2 {
		t.Errorf("%d rows of CURRENT, want 2", n)
	}
	if n := f.counter(t, "adapter_current_rows_written_total"); n != 2 {
		t.Errorf("%v rows counted, want 2", n)
	}
	if n := f.counter(t, "adapter_current_pending_series"); n != 0 {
		t.Errorf("%v series pending, want 0", n)
	}
	f.open(t)
}

func TestCurrentFlushesAtTheInterval(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.CurrentInterval = time.Millisecond })
	f.append(t, sample(up, someTime, 1))
	eventually(t, "the row is written", func() bool { return f.store.rows(bucketstore.Current) == 1 })
	eventually(t, "nothing is pending", func() bool { return f.counter(t, "adapter_current_pending_series") == 0 })
	wantSeries(t, "current", f.current(t, 0), sample(up, someTime, 1))
	f.append(t, sample(up, someTime+1, 2))
	eventually(t, "the row is written again", func() bool { return f.store.rows(bucketstore.Current) == 2 })
}

func TestCurrentStaleAtOnce(t *testing.T) {
	f := openFixture(t)
	f.append(t, sample(up, someTime, 1), sample(labels.FromStrings("__name__", "other"), someTime, 1))
	f.append(t, sample(up, someTime+1, stale))
	eventually(t, "the marker is written", func() bool { return f.store.rows(bucketstore.Current) > 0 })
	if n := f.store.rows(bucketstore.Current); n != 1 {
		t.Errorf("%d rows of CURRENT, want that of the marker", n)
	}
	wantSeries(t, "current", f.current(t, 0), sample(labels.FromStrings("__name__", "other"), someTime, 1))
}

// A series has one row in a flush, with all of its current sample.
func TestCurrentRow(t *testing.T) {
	first, second := ingest.Sample{T: someTime, V: 1}, ingest.Sample{T: someTime + 1, V: 2}
	started := func(s ingest.Sample) ingest.Sample { s.ST = someTime - 1000; return s }
	marker := func(s ingest.Sample) ingest.Sample { s.V = stale; return s }
	tests := []struct {
		name    string
		samples []ingest.Sample
		atOnce  bool
	}{
		{"floats", []ingest.Sample{first, second}, false},
		{"a start, then none", []ingest.Sample{started(first), second}, false},
		{"a start after none", []ingest.Sample{first, started(second)}, false},
		{"two markers", []ingest.Sample{marker(first), marker(second)}, true},
		{"back again", []ingest.Sample{marker(first), second}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			applied := make(chan []bucketstore.Mutation, len(tt.samples))
			f.store.onApply = func(table bucketstore.Table, muts []bucketstore.Mutation) error {
				if table == bucketstore.Current {
					applied <- muts
				}
				return nil
			}
			f.append(t, ingest.Series{Labels: up, Samples: tt.samples})
			if !tt.atOnce {
				f.close(t)
			}
			muts, last := <-applied, tt.samples[len(tt.samples)-1]
			want := bucketstore.Op{
				Kind: bucketstore.SetCell, Family: series.FamilyCurrent, Qualifier: []byte(series.QualifierCurrent),
				Time: last.T, Value: cell.Append(nil, cell.Value{Start: last.ST, Float: last.V}),
			}
			if len(muts) != 1 || string(muts[0].Key) != "up" || !reflect.DeepEqual(muts[0].Ops, []bucketstore.Op{want}) {
				t.Errorf("rows %+v, want up with %+v", muts, want)
			}
			if !tt.atOnce {
				f.open(t)
			}
		})
	}
}

// What cannot be written stays, for readers and for the next flush, and the
// writer gets no error.
func TestCurrentFlushFailure(t *testing.T) {
	f := openFixture(t)
	var broken atomic.Bool
	broken.Store(true)
	f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table == bucketstore.Current && broken.Load() {
			return errStore
		}
		return nil
	}
	other := labels.FromStrings("__name__", "other")
	f.append(t, sample(up, someTime, stale), sample(other, someTime, 5))
	eventually(t, "a flush fails", func() bool { return f.counter(t, "adapter_current_flushes_total", "result", "failure") == 1 })
	wantSeries(t, "in memory", f.current(t, 0), sample(other, someTime, 5))
	if err := f.Close(context.Background()); !errors.Is(err, errStore) {
		t.Errorf("Close: %v, want the error of the store", err)
	}
	f.open(t)
	wantSeries(t, "lost with the process", f.current(t, 0))

	f.append(t, sample(up, someTime+1, stale), sample(other, someTime+1, 6))
	broken.Store(false)
	f.reopen(t)
	wantSeries(t, "in the table", f.current(t, 0), sample(other, someTime+1, 6))
	if n := f.store.rows(bucketstore.Current); n != 2 {
		t.Errorf("%d rows of CURRENT, want 2", n)
	}
}

// A sample that comes while its series is written is not forgotten.
func TestCurrentNoteWhileFlushing(t *testing.T) {
	for _, later := range []ingest.Sample{{T: someTime + 1, V: 2}, {T: someTime, V: 2}} {
		t.Run(fmt.Sprint(later.T-someTime), func(t *testing.T) {
			f := openFixture(t)
			f.append(t, sample(up, someTime, 1))
			f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
				if table == bucketstore.Current {
					f.store.onApply = nil
					f.append(t, ingest.Series{Labels: up, Samples: []ingest.Sample{later}})
				}
				return nil
			}
			f.close(t) // flushes value 1; 2 comes in between
			if n := f.counter(t, "adapter_current_pending_series"); n != 1 {
				t.Errorf("%v series pending, want the one that came in between", n)
			}
			wantSeries(t, "in memory", f.current(t, 0), sample(up, later.T, 2))
			f.open(t)
		})
	}
}

// When CURRENT takes nothing, no more is kept than is allowed, and of what is
// kept the current one.
func TestCurrentPendingIsBounded(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.CachedSeries = 2 })
	a, b, c := labels.FromStrings("__name__", "a"), labels.FromStrings("__name__", "b"), labels.FromStrings("__name__", "c")
	f.append(t, sample(a, someTime, 1), sample(b, someTime, 1), sample(c, someTime, 1))
	f.append(t, sample(c, someTime+1, 2), sample(a, someTime+1, 2))
	if n := f.counter(t, "adapter_current_dropped_total"); n != 2 {
		t.Errorf("%v samples dropped, want 2", n)
	}
	wantSeries(t, "current", f.current(t, 0), sample(a, someTime+1, 2), sample(b, someTime, 1))
	f.reopen(t)
	f.append(t, sample(c, someTime+2, 3))
	wantSeries(t, "with room again", f.current(t, 0), sample(a, someTime+1, 2), sample(b, someTime, 1), sample(c, someTime+2, 3))
	if found := f.collect(t, everything()); len(found) != 3 || len(found[2].Samples) != 3 {
		t.Errorf("stored is %v", found)
	}
}

func TestCurrentErrors(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.Limits.MaxSeries = 1 })
	f.unchecked = true
	f.append(t, sample(up, someTime, 1))
	f.reopen(t)
	if err := f.store.Store.Apply(t.Context(), bucketstore.Current, []bucketstore.Mutation{{Key: []byte("up"), Ops: []bucketstore.Op{
		{Kind: bucketstore.SetCell, Family: "v", Qualifier: []byte("v"), Time: someTime + 1, Value: []byte("odd")},
	}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Current(t.Context(), [][]*labels.Matcher{nil}, 0); err == nil || !strings.Contains(err.Error(), `"up"`) {
		t.Errorf("error %v, want one that names the row", err)
	}
	f.append(t, sample(labels.FromStrings("__name__", "other"), someTime, 1))
	if _, err := f.Current(t.Context(), [][]*labels.Matcher{nil}, 0); !errors.Is(err, reader.ErrLimit) {
		t.Errorf("error %v, want ErrLimit", err)
	}
}
