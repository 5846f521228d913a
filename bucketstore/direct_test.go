package bucketstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// recorder is a Store that only remembers what was applied last.
type recorder struct {
	bucketstore.Store
	table bucketstore.Table
	muts  []bucketstore.Mutation
	err   error
}

func (r *recorder) Apply(_ context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	r.table, r.muts = table, nil
	for _, m := range muts { // their memory is used again
		c := bucketstore.Mutation{Key: bytes.Clone(m.Key)}
		for _, op := range m.Ops {
			op.Qualifier, op.Value = bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
			c.Ops = append(c.Ops, op)
		}
		r.muts = append(r.muts, c)
	}
	return r.err
}

func newSchema(t testing.TB, resource ...string) series.Schema {
	t.Helper()
	schema, err := series.NewSchema(resource)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func at(ms int64) func() time.Time {
	return func() time.Time { return time.UnixMilli(ms) }
}

// describe writes the mutations of METRIC for people, one row a line.
func describe(t *testing.T, muts []bucketstore.Mutation) string {
	t.Helper()
	var b strings.Builder
	for _, m := range muts {
		b.WriteString(string(m.Key))
		for _, op := range m.Ops {
			delta, err := series.ParseQualifier(op.Qualifier)
			if err != nil || op.Kind != bucketstore.SetCell {
				t.Fatalf("%+v is no sample: %v", op, err)
			}
			var v any = string(op.Value)
			if len(op.Value) == 8 {
				v = math.Float64frombits(binary.BigEndian.Uint64(op.Value))
			}
			fmt.Fprintf(&b, " %s:%d=%v@%d", op.Family, delta, v, op.Time)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestDirectFamily(t *testing.T) {
	const (
		w      = 100
		start  = w << 23
		end    = (w + 1) << 23
		minute = int64(time.Minute / time.Millisecond)
	)
	tests := []struct {
		name  string
		clock int64
		// want are the families of samples of the windows w-2 to w+2.
		want string
	}{
		{"middle", start + 1<<22, "l r3 r0 r1 l"},
		{"middle of the next", end + 1<<22, "l l r0 r1 r2"},
		{"first instant", start, "l r3 r0 r1 l"},
		{"last instant", end - 1, "l r3 r0 r1 l"},
		{"15 minutes in, 15 slow", start + 15*minute - 15*minute, "l r3 r0 r1 l"},
		{"15 minutes in, 15 fast", start + 15*minute + 15*minute, "l r3 r0 r1 l"},
		{"15 minutes left, 15 fast", end - 1 - 15*minute + 15*minute, "l r3 r0 r1 l"},
		{"a minute in, 15 slow", start + minute - 15*minute, "r2 r3 r0 l l"},
		{"a minute left, 15 fast", end - minute + 15*minute, "l l r0 r1 r2"},
		{"one before", start - 1, "r2 r3 r0 l l"},
		{"one after", end, "l l r0 r1 r2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, offset := range []int64{0, 1 << 22, 1<<23 - 1} {
				store := new(recorder)
				d := bucketstore.NewDirect(store, series.Schema{}, at(tt.clock), nil)
				ref := d.Ref([]byte("up"))
				var samples []bucketstore.Sample
				for n := int64(w - 2); n <= w+2; n++ {
					samples = append(samples, bucketstore.Sample{Ref: ref, T: n<<23 + offset, V: 1})
				}
				if err := d.Append(t.Context(), samples); err != nil {
					t.Fatal(err)
				}
				var got []string
				for i, op := range store.muts[0].Ops {
					got = append(got, op.Family)
					want := samples[i].T
					if op.Family == "l" {
						want = tt.clock
					}
					if op.Time != want {
						t.Errorf("sample at %d: cell time %d in family %s, want %d", samples[i].T, op.Time, op.Family, want)
					}
				}
				if text := strings.Join(got, " "); text != tt.want {
					t.Errorf("%d ms into each window: families %s, want %s", offset, text, tt.want)
				}
			}
		})
	}
}

// TestDirectLate: periods with late samples are told, before the samples are written, unless
// they are that of the last window or later ones. An index period has 64 windows.
func TestDirectLate(t *testing.T) {
	const half = 1 << 22
	for _, tt := range []struct {
		name    string
		clock   int64 // windows, and a half
		samples []int64
		want    string
	}{
		{"nothing is late", 100, []int64{99, 100, 101}, "[]"},
		{"late in the same period", 100, []int64{70, 98, 64}, "[]"},
		{"late, of older periods", 200, []int64{10, 11, 191, 192, 70, 10}, "[0 2 1 0]"},
		{"early", 100, []int64{110, 300}, "[]"},
		{"the first window of a period", 128, []int64{126, 100, 127}, "[]"},
		{"the second", 129, []int64{126, 127, 128}, "[1]"},
		{"the begin of time", 0, []int64{0, 3}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := new(recorder)
			d := bucketstore.NewDirect(store, series.Schema{}, at(tt.clock<<23+half), nil)
			got := []int64{}
			d.OnLate(func(_ []byte, period int64) {
				if store.muts != nil {
					t.Error("told after the write")
				}
				got = append(got, period/series.IndexPeriod)
			})
			var samples []bucketstore.Sample
			for i, window := range tt.samples {
				samples = append(samples, bucketstore.Sample{Ref: d.Ref([]byte("up")), T: window<<23 + int64(i), V: 1})
			}
			if err := d.Append(t.Context(), samples); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != tt.want {
				t.Errorf("periods %v, want %s", got, tt.want)
			}
		})
	}
}

// TestDirectInDoubt: while the clock is in doubt all samples go to l. After that, samples
// go to l whose time may have been written before. The clock is read once.
func TestDirectInDoubt(t *testing.T) {
	const start = 100 << 23
	store := new(recorder)
	var now, from int64
	asked := 0
	d := bucketstore.NewDirect(store, series.Schema{}, func() time.Time { return time.UnixMilli(now) }, func(at time.Time) int64 {
		if asked++; at.UnixMilli() != now {
			t.Errorf("called with %d, want %d", at.UnixMilli(), now)
		}
		return from
	})
	up, down := d.Ref([]byte("up")), d.Ref([]byte("down"))
	for _, tt := range []struct {
		name      string
		now, from int64
		want      string
	}{
		{"in doubt", start, series.MaxTime + 1,
			"up,0000000000000 l:838860800=1@838860800 l:838860900=2@838860800\ndown,0000000000000 l:838860900=3@838860800\n"},
		{"doubt has ended", start + 50, start + 100,
			"up,0000000000000 l:838860800=1@838860850 r0:838860900=2@838860900\ndown,0000000000000 r0:838860900=3@838860900\n"},
		{"long ago", start + 1000, 0,
			"up,0000000000000 r0:838860800=1@838860800 r0:838860900=2@838860900\ndown,0000000000000 r0:838860900=3@838860900\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, from, asked = tt.now, tt.from, 0
			samples := []bucketstore.Sample{{Ref: up, T: start, V: 1}, {Ref: up, T: start + 100, V: 2}, {Ref: down, T: start + 100, V: 3}}
			if err := d.Append(t.Context(), samples); err != nil {
				t.Fatal(err)
			}
			if got := describe(t, store.muts); got != tt.want {
				t.Errorf("%swant\n%s", got, tt.want)
			}
			if asked != 1 {
				t.Errorf("the clock was read %d times", asked)
			}
		})
	}
}

// TestDirectOnArrival: what is deleted decides where samples go, after the clock.
func TestDirectOnArrival(t *testing.T) {
	const now = 100<<23 + 1<<22
	store := &recorder{}
	direct := bucketstore.NewDirect(store, newSchema(t), at(now), func(time.Time) int64 { return now - 5 })
	direct.OnArrival(func(a series.Arrival) series.Arrival {
		if a != (series.Arrival{Now: now, RawFrom: now - 5}) {
			t.Errorf("%+v", a)
		}
		return series.Arrival{Now: a.Now, RawFrom: now, LateFrom: now + 7}
	})
	ref := direct.Ref([]byte("up"))
	if err := direct.Append(t.Context(), []bucketstore.Sample{{Ref: ref, T: now - 1, V: 1}, {Ref: ref, T: now, V: 2}}); err != nil {
		t.Fatal(err)
	}
	base, delta := series.Split(now)
	want := fmt.Sprintf("up,%013d l:%d=1@%d r0:%d=2@%d\n", base, delta-1, int64(now+7), delta, int64(now))
	if got := describe(t, store.muts); got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestDirectRows(t *testing.T) {
	const base = 2 * series.Period
	now := base + 1000
	tests := []struct {
		name     string
		resource []string
		samples  func(ref func(string) bucketstore.Ref) []bucketstore.Sample
		want     string
	}{
		{name: "nothing", samples: func(func(string) bucketstore.Ref) []bucketstore.Sample { return nil }},
		{
			name: "series take turns",
			samples: func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				return []bucketstore.Sample{
					{Ref: ref("b"), T: base, V: 1}, {Ref: ref("a"), T: base, V: 2}, {Ref: ref("b"), T: base + 2, V: 3}, {Ref: ref("a"), T: base + 1, V: 4},
				}
			},
			want: "b,0008589934592 r0:0=1@8589934592 r0:2=3@8589934594\n" +
				"a,0008589934592 r0:0=2@8589934592 r0:1=4@8589934593\n",
		},
		{
			name: "the later value of a delta",
			samples: func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				a := ref("a")
				return []bucketstore.Sample{{Ref: a, T: base + 5, V: 1}, {Ref: a, T: base + 7, V: 2}, {Ref: a, T: base + 5, V: 3}, {Ref: ref("a"), T: base + 5, V: 4}, {Ref: a, T: base + 6, V: 5}}
			},
			want: "a,0008589934592 r0:5=4@8589934597 r0:7=2@8589934599 r0:6=5@8589934598\n",
		},
		{
			name: "three bases",
			samples: func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				a := ref("a")
				return []bucketstore.Sample{{Ref: a, T: base + 5, V: 1}, {Ref: a, T: base - 1, V: 2}, {Ref: a, T: base - series.Period - 1, V: 3}, {Ref: a, T: base - series.Period, V: 4}, {Ref: a, T: base, V: 5}}
			},
			want: "a,0008589934592 r0:5=1@8589934597 r0:0=5@8589934592\n" +
				"a,0004294967296 r3:4294967295=2@8589934591 l:0=4@8589935592\n" +
				"a,0000000000000 l:4294967295=3@8589935592\n",
		},
		{
			name: "ends of time",
			samples: func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				return []bucketstore.Sample{{Ref: ref("a"), T: 0, V: 1}, {Ref: ref("a"), T: series.MaxTime, V: 2}}
			},
			want: "a,0000000000000 l:0=1@8589935592\na,9998683865088 l:1316134911=2@8589935592\n",
		},
		{
			name: "encoded values",
			samples: func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				return []bucketstore.Sample{{Ref: ref("a"), T: base, V: 1, Value: []byte("kind")}, {Ref: ref("a"), T: base + 1, V: 3}}
			},
			want: "a,0008589934592 r0:0=kind@8589934592 r0:1=3@8589934593\n",
		},
		{
			name:     "resource labels",
			resource: []string{"host", "podname"},
			samples: func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				return []bucketstore.Sample{{Ref: ref("a,b=c,h1,"), T: base, V: 1}, {Ref: ref(`a,b=c,h\,2,p`), T: base, V: 2}, {Ref: ref("a,b=c,h1,"), T: base + 1, V: 3}}
			},
			want: "a,b=c,0008589934592,h1, r0:0=1@8589934592 r0:1=3@8589934593\n" +
				`a,b=c,0008589934592,h\,2,p r0:0=2@8589934592` + "\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := new(recorder)
			d := bucketstore.NewDirect(store, newSchema(t, tt.resource...), at(now), nil)
			samples := tt.samples(func(key string) bucketstore.Ref { return d.Ref([]byte(key)) })
			if err := d.Append(t.Context(), samples); err != nil {
				t.Fatal(err)
			}
			if got := describe(t, store.muts); got != tt.want || store.table != bucketstore.Metric {
				t.Errorf("%s of\n%swant\n%s", store.table, got, tt.want)
			}
		})
	}
}

func TestDirectRefCopiesTheKey(t *testing.T) {
	key := []byte("up")
	ref := bucketstore.NewDirect(nil, series.Schema{}, time.Now, nil).Ref(key)
	copy(key, "xx")
	if got := string(ref.SeriesKey()); got != "up" {
		t.Errorf("the key has become %q", got)
	}
}

func TestDirectErrors(t *testing.T) {
	errRow, errAll := errors.New("row"), errors.New("all")
	rowsError := func(rows ...int) error {
		failed := make(map[int]error)
		for _, n := range rows {
			failed[n] = errRow
		}
		return fmt.Errorf("wrapped: %w", &bucketstore.RowsError{Failed: failed})
	}
	tests := []struct {
		name string
		err  error
		// want are the failed positions, nil if the store does not say.
		want []int
	}{
		{"first row", rowsError(0), []int{0, 2, 5}},
		{"row of one sample", rowsError(2), []int{3}},
		{"two rows", rowsError(2, 1), []int{1, 3, 4}},
		{"every row", rowsError(0, 1, 2), []int{0, 1, 2, 3, 4, 5}},
		{"unknown", errAll, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := bucketstore.NewDirect(&recorder{err: tt.err}, series.Schema{}, at(0), nil)
			a, b := d.Ref([]byte("a")), d.Ref([]byte("b"))
			// Rows: a; b; a in the next base. Position 0 is overwritten by 5.
			err := d.Append(t.Context(), []bucketstore.Sample{{Ref: a, T: 1, V: 1}, {Ref: b, T: 1, V: 1}, {Ref: a, T: 2, V: 1}, {Ref: a, T: series.Period, V: 1}, {Ref: b, T: 1, V: 2}, {Ref: a, T: 1, V: 3}})
			var failed *bucketstore.SamplesError
			switch {
			case tt.want == nil:
				if errors.As(err, &failed) || !errors.Is(err, errAll) {
					t.Errorf("error %v, want that of the store, without samples", err)
				}
			case !errors.As(err, &failed):
				t.Errorf("error %v, want a SamplesError", err)
			case !slices.Equal(failed.Failed, tt.want):
				t.Errorf("failed are %v, want %v", failed.Failed, tt.want)
			case !strings.Contains(err.Error(), errRow.Error()):
				t.Errorf("error %q does not hold %q", err, errRow)
			}
		})
	}
}

// Failed rows that a real client reports come out as samples, and all others are durable.
func TestDirectRowFailure(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	store := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if broken.Load() && key == "b,0000000000000" {
			return status.Error(codes.Internal, "broken row")
		}
		return nil
	}))
	d := bucketstore.NewDirect(store, series.Schema{}, at(0), nil)
	a, b, c := d.Ref([]byte("a")), d.Ref([]byte("b")), d.Ref([]byte("c"))
	samples := []bucketstore.Sample{{Ref: a, T: 1, V: 1}, {Ref: b, T: 1, V: 2}, {Ref: c, T: 1, V: 3}, {Ref: b, T: 2, V: 4}}

	err := d.Append(t.Context(), samples)
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) || !slices.Equal(failed.Failed, []int{1, 3}) || !strings.Contains(err.Error(), "broken row") {
		t.Fatalf("error %v, want one about the samples 1 and 3 and the broken row", err)
	}
	if got, want := keys(t, store), []string{"a,0000000000000", "c,0000000000000"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
	broken.Store(false)
	if err := d.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, store); len(got) != 3 {
		t.Errorf("after the retry: rows %q, want three", got)
	}
}

// keys returns the keys of METRIC that have samples in r0.
func keys(t *testing.T, store bucketstore.Store) (keys []string) {
	t.Helper()
	err := store.Scan(t.Context(), bucketstore.ScanRequest{
		Table:    bucketstore.Metric,
		Rows:     []series.RowRange{{}},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyR0}},
	}, func(r bucketstore.Row) error {
		keys = append(keys, string(r.Key))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// lastValues is a Store that keeps the last value of each column and the largest number of
// operations on a row.
type lastValues struct {
	bucketstore.Store
	values map[string]float64
	most   int
}

func (l *lastValues) Apply(_ context.Context, _ bucketstore.Table, muts []bucketstore.Mutation) error {
	for _, m := range muts {
		l.most = max(l.most, len(m.Ops))
		for _, op := range m.Ops {
			v, err := cell.ParseFloat(op.Value)
			if err != nil {
				return err
			}
			l.values[string(m.Key)+string(op.Qualifier)] = v
		}
	}
	return nil
}

// TestDirectLongRow: a row takes no more operations at once than Bigtable
// allows, and the later value of a column still wins.
func TestDirectLongRow(t *testing.T) {
	const distinct, limit = 150_000, 100_000
	store := &lastValues{values: make(map[string]float64)}
	d := bucketstore.NewDirect(store, newSchema(t), at(0), nil)
	ref := d.Ref([]byte("long"))
	samples := make([]bucketstore.Sample, 0, distinct+1)
	for i := range int64(distinct) {
		samples = append(samples, bucketstore.Sample{Ref: ref, T: i, V: 1})
	}
	samples = append(samples, bucketstore.Sample{Ref: ref, T: 0, V: 2})
	if err := d.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
	first := store.values["long,0000000000000\x00\x00\x00\x00"]
	if len(store.values) != distinct || first != 2 || store.most > limit {
		t.Errorf("%d columns, the first is %v, %d operations on a row", len(store.values), first, store.most)
	}
}

// failer is a Store of which one Apply has rows that fail.
type failer struct {
	bucketstore.Store
	call, fails int
}

func (f *failer) Apply(context.Context, bucketstore.Table, []bucketstore.Mutation) error {
	if f.call++; f.call == f.fails {
		return &bucketstore.RowsError{Failed: map[int]error{0: errors.New("row failed")}}
	}
	return nil
}

// TestDirectErrorInALaterPart: positions are those in what was given to Append.
func TestDirectErrorInALaterPart(t *testing.T) {
	d := bucketstore.NewDirect(&failer{fails: 2}, newSchema(t), at(0), nil)
	first, second := d.Ref([]byte("first")), d.Ref([]byte("second"))
	var samples []bucketstore.Sample
	for i := range int64(100_002) {
		samples = append(samples, bucketstore.Sample{Ref: first, T: i})
	}
	samples = append(samples, bucketstore.Sample{Ref: second})
	var failed *bucketstore.SamplesError
	if err := d.Append(t.Context(), samples); !errors.As(err, &failed) {
		t.Fatalf("Append: %v", err)
	}
	if want := []int{100_000, 100_001}; !slices.Equal(failed.Failed, want) {
		t.Errorf("failed are %v, want %v", failed.Failed, want)
	}
}
