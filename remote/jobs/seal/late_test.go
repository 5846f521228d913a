package seal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
)

// withNotes makes the writer of a bench note late cells.
func (b *bench) withNotes() *seal.LateNotes {
	notes := seal.NewLateNotes(b.store, b.schema, b.clock, nil)
	b.direct.OnLate(notes.Add)
	return notes
}

func (b *bench) writeNotes(notes *seal.LateNotes) {
	b.Helper()
	if err := notes.Write(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// notes returns the noted periods.
func (b *bench) notes() (periods []string) {
	b.Helper()
	err := meta.ScanCells(b.Context(), b.store, b.schema.MetaRange(series.MetaSealPeriod), func(key []byte, _ meta.Cell) error {
		_, name, err := b.schema.ParseMetaKey(key)
		periods = append(periods, name)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return periods
}

// walked seals the slot of the window n windows after window0. It says whether rows of a
// series were read.
func (b *bench) walked(n int64, s testSeries) (read bool) {
	b.Helper()
	b.now = window0 + n*series.Window + hour
	err := b.sealer(func(c *seal.Config) {
		c.Store = &scanHook{b.store, func(ranges []series.RowRange) error {
			for _, r := range ranges {
				read = read || strings.HasPrefix(string(r.Start), string(s.key)+",")
			}
			return nil
		}}
	}).Once(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return read
}

// weekOfSlots is how many slots a week has, rounded up.
const weekOfSlots = 7*24*hour/series.Window + 1

// TestOlderPeriods: old rows are walked where late cells are noted, and once a week.
func TestOlderPeriods(t *testing.T) {
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, open(t))
			old, other := b.named("old"), b.named("other")
			const at = window0 - 3*series.IndexPeriod
			b.write(old, at, float(1))
			b.write(other, at-4*series.IndexPeriod, float(1)) // of another base
			for slot := int64(2); slot < 6; slot++ {
				if !b.walked(slot, old) {
					t.Errorf("slot %d: the row is not read, want once for each family", slot)
				}
			}
			b.wantCells("after four slots", map[string]int{"c": 2})

			for slot := int64(6); slot < 10; slot++ {
				if b.walked(slot, old) {
					t.Errorf("slot %d: the row is read for nothing", slot)
				}
			}

			notes := b.withNotes()
			b.write(old, at+1, float(2))
			b.writeNotes(notes)
			want := []string{fmt.Sprintf("%013d", series.PeriodOf(at))}
			if got := b.notes(); !slices.Equal(got, want) {
				t.Errorf("periods %q are noted, want %q", got, want)
			}
			if !b.walked(10, old) {
				t.Error("the row with a late sample is not read")
			}
			if b.walked(11, other) {
				t.Error("another row is read")
			}
			b.wantCells("the late sample", map[string]int{"c": 2})
			if got := b.notes(); got != nil {
				t.Errorf("periods %q are noted", got)
			}

			b.write(old, at+2, float(3)) // its note is lost
			slots := 0
			for slot := int64(12); slot < 12+weekOfSlots; slot++ {
				if b.walked(slot, old) {
					slots++
				}
			}
			if slots != 1 {
				t.Errorf("in a week the row is read in %d slots, want one", slots)
			}
			b.wantCells("the sample without a note", map[string]int{"c": 2})
		})
	}
}

// TestFullWalkReadsRowsOnce: a row that eight index periods name is read once by a walk of all older periods, and once more where the series
// was away for a period. What it finds without a note is sealed in all of them.
func TestFullWalkReadsRowsOnce(t *testing.T) {
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, open(t))
			const base = worldBase - series.Period
			all := []int64{0, 1, 2, 3, 4, 5, 6, 7}
			chosen := map[string]struct {
				periods []int64
				reads   int
			}{
				"steady": {all, 1}, "steady2": {all, 1}, "steady,3": {all, 1}, "away": {[]int64{0, 1, 3, 4}, 2}, "last": {[]int64{7}, 1}, "twice": {[]int64{2, 3}, 1},
			}
			keys := make(map[string]string)
			for name, c := range chosen {
				for i := range 3 { // of one metric name
					s := newTestSeries(t, b.schema, labels.FromStrings("__name__", name, "i", fmt.Sprint(i)))
					keys[string(b.schema.AppendRowKey(nil, s.key, base))] = name
					for _, period := range c.periods {
						b.write(s, base+period*series.IndexPeriod+minute, float(1))
					}
				}
			}
			b.seal(2)
			if n := b.check()["l"]; n != 0 {
				t.Errorf("%d late cells are left", n)
			}
			reads := make(map[string]int)
			b.now = window0 + 3*series.Window + hour // the walk of another family, which finds nothing to seal
			err := b.sealer(func(c *seal.Config) {
				c.Store = &scanHook{b.store, func(ranges []series.RowRange) error {
					for key, name := range keys {
						if slices.ContainsFunc(ranges, func(r series.RowRange) bool { return r.Contains([]byte(key)) }) {
							reads[name]++
						}
					}
					return nil
				}}
			}).Once(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for name, c := range chosen {
				if reads[name] != 3*c.reads {
					t.Errorf("the rows of %q are read %d times, want %d", name, reads[name], 3*c.reads)
				}
			}
		})
	}
}

// TestYoungNote: a note stays until a walk has sealed all that it stands for, and while it
// is written again.
func TestYoungNote(t *testing.T) {
	b := newBench(t, newMemory())
	old := b.named("old")
	const at = window0 - 3*series.IndexPeriod
	for slot := int64(2); slot < 6; slot++ {
		b.seal(slot)
	}
	notes := b.withNotes()
	for slot := int64(6); slot < 9; slot++ {
		b.now = window0 + slot*series.Window + hour - 10*minute
		b.write(old, at+slot, float(1))
		b.writeNotes(notes)
		b.seal(slot) // too early for the last sample
		if len(b.notes()) != 1 || b.check()["l"] != 1 {
			t.Errorf("slot %d: notes %q, cells %v", slot, b.notes(), b.check())
		}
	}
	b.seal(9)
	if len(b.notes()) != 0 || b.check()["l"] != 0 {
		t.Errorf("at last: notes %q, cells %v", b.notes(), b.check())
	}
}

// TestLatePeriodsInSlots: noted periods for which a slot has too little time are walked in
// the next ones, each from where the last one stopped.
func TestLatePeriodsInSlots(t *testing.T) {
	b := newBench(t, newMemory())
	for slot := int64(2); slot < 6; slot++ {
		b.seal(slot)
	}
	notes := b.withNotes()
	all := b.many(2*seal.RowsAtOnce + 1)
	for i := range int64(3) {
		for _, s := range all {
			b.write(s, window0-(2+i)*series.IndexPeriod, float(1))
		}
	}
	b.writeNotes(notes)
	b.now = window0 + 6*series.Window + 15*minute
	slots := 0
	for ; len(b.notes()) > 0; slots++ {
		if slots > 10 {
			t.Fatalf("after %d slots: notes %q, cells %v", slots, b.notes(), b.check())
		}
		s := b.sealer(func(c *seal.Config) { c.RowsPerSecond = float64(len(all)) / slotSeconds })
		b.moveClock(s)
		if err := s.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.now = b.now&^(series.Window-1) + series.Window + 15*minute
	}
	if slots < 3 {
		t.Errorf("%d slots had time for all periods", slots)
	}
	b.wantCells("sealed", map[string]int{"c": 3 * len(all)})
}

// TestGap: after a time without sealing that is too long for a round, older periods are
// walked for the raw cells in them.
func TestGap(t *testing.T) {
	b := newBench(t, newMemory())
	up, old := b.named("up"), b.named("old")
	b.write(up, window0, float(1))
	for slot := int64(2); slot < 6; slot++ {
		b.seal(slot)
	}
	b.now = window0 + 8*series.Window
	b.write(old, b.now, float(1))
	const later = 3 * series.IndexPeriod / series.Window
	b.now += later * series.Window
	b.write(up, b.now, float(1))
	for slot := int64(10); slot < 14; slot++ {
		b.seal(later + slot)
	}
	b.wantCells("sealed", map[string]int{"c": 3})
}

// TestWrongProgress: what a sealer with a clock that was ahead has written does not keep
// others from sealing.
func TestWrongProgress(t *testing.T) {
	b := newBench(t, newMemory())
	up := b.named("up")
	b.write(up, window0, float(1))
	for slot := int64(1000); slot < 1006; slot++ {
		b.seal(slot)
	}
	b.now = window0 + series.Window
	b.write(up, b.now, float(1))
	b.now += 5 * minute
	b.write(up, b.now-40*series.Window, float(1))
	for slot := int64(2); slot < 6; slot++ {
		b.seal(slot)
	}
	if n := b.unsealed(window0 + 2*series.Window); n != 0 {
		t.Errorf("%d raw cells are left", n)
	}
}

// TestNotesFail: notes that could not be written are written later, the last ones when the
// process ends.
func TestNotesFail(t *testing.T) {
	b := newBench(t, newMemory())
	refuse := true
	notes := seal.NewLateNotes(&metaHook{b.store, func() error {
		if refuse {
			return errRefused
		}
		return nil
	}}, b.schema, b.clock, nil)
	notes.Add(nil, 0)
	if err := notes.Write(t.Context()); !errors.Is(err, errRefused) || b.notes() != nil {
		t.Fatalf("notes %q, %v", b.notes(), err)
	}
	refuse = false
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	notes.Run(ctx)
	if got := b.notes(); len(got) != 1 {
		t.Errorf("notes %q", got)
	}
}

// metaHook calls before when a row of META is written, and returns its error.
type metaHook struct {
	bucketstore.Store
	before func() error
}

func (h *metaHook) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if err := h.before(); err != nil {
		return err
	}
	return h.Store.Apply(ctx, table, muts)
}

// TestMetaRows: the stored bytes of the rows in META. Before it there is the row of a version
// that had one position for all families.
func TestMetaRows(t *testing.T) {
	store := newMemory()
	b := newBench(t, store)
	var err error
	if b.schema, err = b.schema.ForTenant("a"); err != nil {
		t.Fatal(err)
	}
	set := func(key, value string) {
		store.apply(bucketstore.Meta, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: "m", Qualifier: []byte("v"), Time: 1, Value: []byte(value),
		}}})
	}
	cell := func(key string) string {
		c, err := meta.ReadCell(t.Context(), store, key)
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Value)
	}
	set("seal", `{"holder":"h","token":"","expires":0,"window":131776643072,"done":true,"position":{"period":131533373440,"names":"bg=="},`+
		`"walked":7,"last_walked":9,"sealed":[131768254464,131776643072,131751477248,131759865856]}`)
	b.write(b.named("up"), window0, float(1))
	notes := seal.NewLateNotes(store, b.schema, b.clock, nil)
	notes.Add(nil, series.PeriodOf(window0)-series.IndexPeriod)
	b.writeNotes(notes)
	if got, want := cell("a,seal,0130996502528"), "131785031680"; got != want {
		t.Errorf("the note is %q, want %q", got, want)
	}
	b.now = window0 + 2*series.Window + hour
	ended := errors.New("ended")
	s := b.sealer(func(c *seal.Config) { c.Tenants = jobs.NamedTenants(series.Schema{}, "a") })
	s.SetHooks(func(context.Context, time.Duration) error {
		if b.check()["c"] > 0 {
			return ended
		}
		return nil
	}, background)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{ended, `{"holder":"test","token":"","expires":0,"window":131785031680,"walked":1,"last_walked":9,"ratio":1,` +
			`"sealed":[131768254464,131776643072,131751477248,131759865856],` +
			`"rounds":[{},{},{"window":131785031680,"position":{"tenant":"a","period":131533373440,"posting":"YSxwLF9fbmFtZV9fPXVwLDAxMzE1MzMzNzM0NDAsYSx1cA=="},"walked":1},{}],` +
			`"full":[{},{},{},{}]}`},
		{nil, `{"holder":"test","token":"","expires":0,"window":131785031680,"done":true,"walked":1,"last_walked":1,"ratio":1,` +
			`"sealed":[131768254464,131776643072,131785031680,131759865856],"rounds":[{},{},{},{}],"full":[{},{},{"done":131805408896},{}]}`},
	} {
		if err := s.Once(t.Context()); !errors.Is(err, tt.err) {
			t.Fatal(err)
		}
		if got := cell("seal"); got != tt.want {
			t.Errorf("seal is\n%s\nwant\n%s", got, tt.want)
		}
		s.SetHooks(noSleep, background)
	}
	if got := b.notes(); got != nil {
		t.Errorf("notes %q", got)
	}
}

// TestNotesOfTenants: the notes of a process that writes for all tenants are each of the tenant of their series.
func TestNotesOfTenants(t *testing.T) {
	b := newBench(t, newMemory())
	all := b.schema.WithTenants()
	notes := seal.NewLateNotes(b.store, all, b.clock, nil)
	period := series.PeriodOf(window0) - series.IndexPeriod
	for _, tenant := range []string{"a", "b"} {
		of, err := all.ForTenant(tenant)
		if err != nil {
			t.Fatal(err)
		}
		key, err := of.AppendSeriesKey(nil, labels.FromStrings("__name__", "up"))
		if err != nil {
			t.Fatal(err)
		}
		notes.Add(key, period)
	}
	b.writeNotes(notes)
	for key, want := range map[string]string{"a,seal,0130996502528": "131785031680", "b,seal,0130996502528": "131785031680", "c,seal,0130996502528": ""} {
		if c, err := meta.ReadCell(t.Context(), b.store, key); err != nil || string(c.Value) != want {
			t.Errorf("the note %s is %q, want %q, %v", key, c.Value, want, err)
		}
	}
}
