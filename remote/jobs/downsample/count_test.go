package downsample_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// recorder is a store that keeps what is applied to METRIC, and may do something meanwhile.
type recorder struct {
	bucketstore.Store
	applied   [][]bucketstore.Mutation
	meanwhile func() error
}

func (s *recorder) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table != bucketstore.Metric {
		return s.Store.Apply(ctx, table, muts)
	}
	s.applied = append(s.applied, muts)
	if s.meanwhile != nil {
		return s.meanwhile()
	}
	return nil
}

// added returns the days of which a mutation adds to the count.
func added(m bucketstore.Mutation, base int64) (days []int64) {
	for _, op := range m.Ops {
		if op.Kind == bucketstore.Add {
			day := rollup.DayOfCell(base, op.Qualifier)
			if op.Family != series.FamilyCount || op.Time != day+rollup.Day || string(op.Value) != string(bucketstore.AppendSum(nil, 1)) {
				day = -1
			}
			days = append(days, day)
		}
	}
	return days
}

// begun returns a fixture that has begun with days up to the end of day0.
func begun(t *testing.T, store bucketstore.Store, exclusive bool) *fixture {
	t.Helper()
	f := newFixture(t, store, exclusive)
	f.write("m", day0+1)
	f.once()
	return f
}

// TestCounted: a mutation adds 1 for each day that has begun and of which it has samples.
func TestCounted(t *testing.T) {
	f := begun(t, new(storetest.Memory), true)
	const end = day0 + rollup.Day
	chunkAt := func(first, last int64) []byte {
		return slices.Concat(qualifier(first), qualifier(last), []byte("crc!"))
	}
	set := func(family string, qualifier []byte) bucketstore.Op {
		return bucketstore.Op{Family: family, Qualifier: qualifier, Value: []byte("12345678")}
	}
	for _, tt := range []struct {
		name string
		base int64
		ops  []bucketstore.Op
		want []int64
	}{
		{"the start of a day is of the day before", bases[0], []bucketstore.Op{set(series.FamilyR0, qualifier(day0))}, []int64{day0 - rollup.Day}},
		{"its end", bases[0], []bucketstore.Op{set(series.FamilyR1, qualifier(end))}, []int64{day0}},
		{"after the last day", bases[0], []bucketstore.Op{set(series.FamilyLate, qualifier(end+1))}, nil},
		{"several of a day", bases[0], []bucketstore.Op{set(series.FamilyLate, qualifier(day0+1)), set(series.FamilyR3, qualifier(day0+2))}, []int64{day0}},
		{"a chunk over midnight", bases[0], []bucketstore.Op{set(series.FamilyChunk, chunkAt(day0-1, day0+1))}, []int64{day0 - rollup.Day, day0}},
		{"a chunk that ends at midnight", bases[0], []bucketstore.Op{set(series.FamilyChunk, chunkAt(end-1, end))}, []int64{day0}},
		{"a chunk that ends after the last day", bases[0], []bucketstore.Op{set(series.FamilyChunk, chunkAt(end, end+1))}, []int64{day0}},
		{"a chunk after it", bases[0], []bucketstore.Op{set(series.FamilyChunk, chunkAt(end+1, end+2))}, nil},
		{"no samples", bases[0], []bucketstore.Op{set(series.FamilyExemplar, qualifier(day0+1)), set(rollup.FiveMinutes.Family(), qualifier(day0)), set(rollup.OneHour.Family(), qualifier(day0))}, nil},
		{"the time 0", 0, []bucketstore.Op{set(series.FamilyLate, qualifier(0))}, nil},
		{"the first day", 0, []bucketstore.Op{set(series.FamilyLate, qualifier(1)), set(series.FamilyLate, qualifier(rollup.Day))}, []int64{0}},
		{"a deleted sample", bases[0], []bucketstore.Op{{Kind: bucketstore.DeleteColumn, Family: series.FamilyLate, Qualifier: qualifier(day0 + 1)}}, []int64{day0}},
		{"a deleted version", bases[0], []bucketstore.Op{{Kind: bucketstore.DeleteColumnBefore, Family: series.FamilyLate, Qualifier: qualifier(day0 + 1), Time: 1}}, []int64{day0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &recorder{Store: f.store}
			muts := []bucketstore.Mutation{{Key: f.schema.AppendRowKey(nil, f.key("other"), tt.base), Ops: tt.ops}}
			if err := f.days.Counted(store).Apply(t.Context(), bucketstore.Metric, muts); err != nil {
				t.Fatal(err)
			}
			got := store.applied[0]
			if days := added(got[0], tt.base); !slices.Equal(days, tt.want) {
				t.Errorf("counts of %v, want %v", days, tt.want)
			}
			if len(muts[0].Ops) != len(tt.ops) || len(tt.want) == 0 && &got[0] != &muts[0] {
				t.Error("the mutations of the caller are changed, or copied without a reason")
			}
		})
	}
	t.Run("a deleted family", func(t *testing.T) {
		store := &recorder{Store: f.store}
		err := f.days.Counted(store).Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{
			Key: f.schema.AppendRowKey(nil, f.key("m"), bases[0]), Ops: []bucketstore.Op{{Kind: bucketstore.DeleteFamily, Family: series.FamilyR2}},
		}})
		days := added(store.applied[0][0], bases[0])
		if want := (day0-rollup.DayOf(bases[0]))/rollup.Day + 1; err != nil || int64(len(days)) != want {
			t.Errorf("%d days are counted, want all %d of the base, %v", len(days), want, err)
		}
	})
	t.Run("other tables", func(t *testing.T) {
		muts := []bucketstore.Mutation{{Key: []byte("no row key"), Ops: []bucketstore.Op{set(series.FamilyCurrent, []byte("v"))}}}
		if err := f.days.Counted(f.store).Apply(t.Context(), bucketstore.Current, muts); err != nil {
			t.Error(err)
		}
	})
}

// TestCountedAllocations: what is not counted costs nothing.
func TestCountedAllocations(t *testing.T) {
	f := begun(t, new(storetest.Memory), true)
	store := f.days.Counted(nothing{})
	muts := []bucketstore.Mutation{{Key: f.schema.AppendRowKey(nil, f.key("m"), bases[0]), Ops: []bucketstore.Op{{
		Family: series.FamilyR0, Qualifier: qualifier(day0 + rollup.Day + 1), Value: []byte("12345678"),
	}}}}
	n := testing.AllocsPerRun(100, func() {
		if err := store.Apply(t.Context(), bucketstore.Metric, muts); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

type nothing struct{ bucketstore.Store }

func (nothing) Apply(context.Context, bucketstore.Table, []bucketstore.Mutation) error { return nil }

// TestCountedUnknown: while it is not known which days have begun all writes count, also those of today.
func TestCountedUnknown(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	store := &recorder{Store: f.store}
	today := f.clock.Load()
	base, _ := series.Split(today)
	write := func() []int64 {
		t.Helper()
		err := f.days.Counted(store).Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{
			Key: f.schema.AppendRowKey(nil, f.key("m"), base), Ops: []bucketstore.Op{{Family: series.FamilyR0, Qualifier: qualifier(today)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return added(store.applied[len(store.applied)-1][0], base)
	}
	f.advance(downsample.MaxStateAge - time.Second)
	if days := write(); len(days) > 0 {
		t.Errorf("counts of %v", days)
	}
	f.advance(2 * time.Second)
	if days := write(); !slices.Equal(days, []int64{rollup.DayOf(today)}) {
		t.Errorf("counts of %v", days)
	}
	f.days.Tick(t.Context())
	if days := write(); len(days) > 0 {
		t.Errorf("after it is known counts of %v", days)
	}
	// The clock that has gone further counts: one may be set back, the other one stand still.
	for _, clocks := range [][2]time.Duration{{time.Hour, -time.Hour}, {0, time.Hour}} {
		f.days.SetElapsed(func(time.Time, time.Time) (monotonic, wall time.Duration) { return clocks[0], clocks[1] })
		if days := added(lastApplied(t, f, store, today)[0], base); len(days) != 1 {
			t.Errorf("%v later, by the wall clock %v, counts of %v", clocks[0], clocks[1], days)
		}
	}
}

// lastApplied writes a sample, and returns what is written first.
func lastApplied(t *testing.T, f *fixture, store *recorder, at int64) []bucketstore.Mutation {
	t.Helper()
	store.applied = nil
	base, _ := series.Split(at)
	err := f.days.Counted(store).Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{
		Key: f.schema.AppendRowKey(nil, f.key("m"), base), Ops: []bucketstore.Op{{Family: series.FamilyR0, Qualifier: qualifier(at)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return store.applied[0]
}

// TestCountedLater: a write that took long counts days that have begun meanwhile, in the rows that have samples of them, before
// it is answered. No row is confirmed if that fails.
func TestCountedLater(t *testing.T) {
	const end = day0 + rollup.Day
	errRow := &bucketstore.RowsError{Failed: map[int]error{2: errRefused}}
	for _, tt := range []struct {
		name string
		took time.Duration
		// results are the errors of the first and the second Apply.
		results [2]error
		want    error
		again   bool
	}{
		{"in time", downsample.MaxAttempt - time.Second, [2]error{}, nil, false},
		{"late", downsample.MaxAttempt, [2]error{}, nil, true},
		{"late, some rows failed", downsample.MaxAttempt, [2]error{errRow}, errRow, true},
		{"late, all failed", downsample.MaxAttempt, [2]error{errLost}, errLost, true},
		{"late, and not counted", downsample.MaxAttempt, [2]error{nil, &bucketstore.RowsError{Failed: map[int]error{0: errRefused}}}, errAny, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := begun(t, new(storetest.Memory), false)
			o := f.other()
			store := &recorder{Store: f.store}
			store.meanwhile = func() error {
				if len(store.applied) > 1 {
					return tt.results[1]
				}
				f.clock.Store(end + 24*hour + downsample.Delay.Milliseconds() + 1)
				o.maker.SetSleep(func(ctx context.Context, _ time.Duration) error { return errDead })
				if err := o.maker.Once(t.Context()); !errors.Is(err, errDead) || o.days.Begun() != end+rollup.Day {
					t.Fatalf("begun %d, %v", o.days.Begun(), err)
				}
				return tt.results[0]
			}
			var muts []bucketstore.Mutation
			for _, at := range []int64{end + rollup.Day + 1, day0 + 1, end + 1} {
				base, _ := series.Split(at)
				muts = append(muts, bucketstore.Mutation{Key: f.schema.AppendRowKey(nil, f.key(fmt.Sprint(at)), base), Ops: []bucketstore.Op{{Family: series.FamilyR0, Qualifier: qualifier(at)}}})
			}
			begin := f.clock.Load()
			f.days.SetElapsed(func(from, to time.Time) (monotonic, wall time.Duration) {
				if from.UnixMilli() == begin && to.UnixMilli() > begin {
					return tt.took, 0
				}
				return 0, 0
			})
			err := f.days.Counted(store).Apply(t.Context(), bucketstore.Metric, muts)
			var failed *bucketstore.RowsError
			switch {
			case tt.want == errAny:
				if err == nil || errors.As(err, &failed) {
					t.Errorf("error %v, want one of no row", err)
				}
			case !errors.Is(err, tt.want) && err != tt.want:
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if !tt.again {
				if len(store.applied) != 1 {
					t.Errorf("%d requests", len(store.applied))
				}
				return
			}
			if len(store.applied) != 2 || len(store.applied[1]) != 1 || string(store.applied[1][0].Key) != string(muts[2].Key) ||
				len(store.applied[1][0].Ops) != 1 || !slices.Equal(added(store.applied[1][0], bases[0]), []int64{end}) {
				t.Errorf("later %+v is counted", store.applied[1:])
			}
		})
	}
}

var errAny = errors.New("any error")

// TestCountedSuspended: an attempt begins before the state is looked at. The machine may be suspended right after
// that.
func TestCountedSuspended(t *testing.T) {
	f := begun(t, new(storetest.Memory), false)
	asks := 0
	store := &recorder{Store: &failing{f.store, func(kind string, table bucketstore.Table) error {
		if kind == "scan" && table == bucketstore.Meta {
			asks++
		}
		return nil
	}}}
	readings := 0
	var err error
	f.days, err = downsample.Open(t.Context(), downsample.Config{Store: storetest.Shared(store, true), Schema: f.schema, Now: func() time.Time {
		now := f.now()
		if readings++; readings == 3 { // the first one after those of Open
			f.advance(time.Hour)
		}
		return now
	}})
	if err != nil || readings != 2 {
		t.Fatalf("%d readings, %v", readings, err)
	}
	asks = 0
	lastApplied(t, f, store, f.clock.Load())
	if asks != 1 {
		t.Errorf("META was asked %d times, want once", asks)
	}
}

// TestCountedBackends: counts add up on both stores, in each row of a day in which a base begins.
func TestCountedBackends(t *testing.T) {
	eachBackend(t, func(t *testing.T, store bucketstore.Store) {
		f := newFixture(t, store, false)
		f.clock.Add(rollup.Day)
		f.days.Tick(t.Context())
		f.write("m", worldBase-1, worldBase)
		f.once()
		for range 3 {
			f.write("m", worldBase-2, worldBase+2)
		}
		f.wantCount("m", map[int64]int64{rollup.DayOf(worldBase): 6})
		f.noteLate()
		f.once()
		for _, m := range f.rollups("m") {
			if m.count != 3 {
				t.Errorf("%v", m)
			}
		}
		f.wantRollups("m", rollup.DayOf(worldBase))
	})
}

// TestNotes: notes are written again after an error, once for each day, and a note that is written while its day is made
// stays.
func TestNotes(t *testing.T) {
	store := &failing{bigtabletest.Open(t), works}
	f := begun(t, store, false)
	f.write("m", day0+2, day0+3, day0-rollup.Day+1)
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind == "apply" && table == bucketstore.Meta {
			return errRefused
		}
		return nil
	}
	f.days.Tick(t.Context())
	if days := f.notes(); len(days) > 0 {
		t.Errorf("notes of %v", days)
	}
	store.fail = works
	f.days.Tick(t.Context())
	if days := f.notes(); !slices.Equal(days, []int64{day0 - rollup.Day, day0}) {
		t.Errorf("notes of %v", days)
	}
	f.once() // they are too young
	if days := f.notes(); len(days) != 2 {
		t.Errorf("notes of %v", days)
	}
	f.advance(downsample.NoteAge)
	store.fail = func(kind string, table bucketstore.Table) error {
		if kind == "apply" && table == bucketstore.Metric && len(f.rollups("m")) > 2 {
			store.fail = works
			f.write("m", day0-rollup.Day+3)
			f.days.Tick(t.Context())
		}
		return nil
	}
	f.once()
	if days := f.notes(); !slices.Equal(days, []int64{day0 - rollup.Day}) {
		t.Errorf("notes of %v are left", days)
	}
	f.advance(downsample.NoteAge)
	f.once()
	f.wantRollups("m", day0-rollup.Day, day0)
	if days := f.notes(); len(days) > 0 {
		t.Errorf("notes of %v are left", days)
	}
}
