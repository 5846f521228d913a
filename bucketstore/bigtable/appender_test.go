package bigtable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

// newAppender returns an appender over s whose clock stands.
func newAppender(t testing.TB, s *bigtable.Store, now int64, resource ...string) *bigtable.Appender {
	t.Helper()
	schema, err := series.NewSchema(resource, false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.NewAppender(schema, func() time.Time { return time.UnixMilli(now) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// describe returns what requests of row mutations say, by row and column: the
// order of either means nothing. A row or a column that is there twice fails the
// test.
func describe(t *testing.T, requests []*bigtablepb.MutateRowsRequest) map[string]map[string]string {
	t.Helper()
	rows := make(map[string]map[string]string)
	for _, req := range requests {
		for _, entry := range req.Entries {
			if rows[string(entry.RowKey)] != nil {
				t.Fatalf("row %q is sent twice", entry.RowKey)
			}
			columns := make(map[string]string)
			for _, m := range entry.Mutations {
				c := m.GetSetCell()
				if c == nil || columns[string(c.ColumnQualifier)] != "" {
					t.Fatalf("row %q: mutation %v is no cell, or the second of its column", entry.RowKey, m)
				}
				columns[string(c.ColumnQualifier)] = fmt.Sprintf("%s %d %x", c.FamilyName, c.TimestampMicros, c.Value)
			}
			rows[string(entry.RowKey)] = columns
		}
	}
	return rows
}

// mutations returns the requests of row mutations that a spy has seen since the
// first n requests.
func (s *spy) mutations(n int) (requests []*bigtablepb.MutateRowsRequest) {
	for _, req := range s.seen()[n:] {
		if m, ok := req.(*bigtablepb.MutateRowsRequest); ok {
			requests = append(requests, m)
		}
	}
	return requests
}

// randomSamples returns samples of a few series around a time: mostly one of
// each, but also runs, repetitions, other bases, encoded values and late ones.
func randomSamples(random *rand.Rand, refs []bucketstore.Ref, now int64) []bucketstore.Sample {
	samples := make([]bucketstore.Sample, random.IntN(200))
	spread := []int64{1, 10, 1 << 23, 1 << 25, 3 * series.Period}[random.IntN(5)]
	for i := range samples {
		s := bucketstore.Sample{Ref: refs[random.IntN(len(refs))], T: now - spread + random.Int64N(2*spread), V: math.Float64frombits(random.Uint64())}
		if i > 0 && random.IntN(4) == 0 {
			s.Ref, s.T = samples[i-1].Ref, samples[i-1].T+random.Int64N(3)
		}
		switch random.IntN(20) {
		case 0:
			s.Value = make([]byte, 9+random.IntN(300))
		case 1:
			s.Value = []byte{}
		case 2:
			s.T = []int64{0, 1, series.Period - 1, series.Period, series.MaxTime}[random.IntN(5)]
		}
		samples[i] = s
	}
	return samples
}

// TestAppenderSendsWhatDirectSends: both make the same cells of random samples.
func TestAppenderSendsWhatDirectSends(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const now = 400*series.Period + 7<<23 + 12345
	schema, err := series.NewSchema([]string{"host"}, false)
	if err != nil {
		t.Fatal(err)
	}
	var spy spy
	s := bigtabletest.Open(t, spy.option(), bigtabletest.WithConfig(func(cfg *bigtable.Config) {
		cfg.TablePrefix, cfg.AppProfile = "prefix-", "profile"
	}))
	clock := func() time.Time { return time.UnixMilli(now) }
	a, direct := newAppender(t, s, now, "host"), bucketstore.NewDirect(s, schema, clock, nil)
	for range 300 {
		var refs, directRefs []bucketstore.Ref
		for i := range 1 + random.IntN(100) {
			// Some series have several references.
			key := fmt.Appendf(nil, "metric_%d,label=%s,host", i/2+i%2*(i/4), strings.Repeat("x", random.IntN(2)*150))
			refs, directRefs = append(refs, a.Ref(key)), append(directRefs, direct.Ref(key))
		}
		samples := randomSamples(random, refs, now)
		before := len(spy.seen())
		if err := a.Append(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
		got := spy.mutations(before)
		for i := range samples {
			samples[i].Ref = directRefs[slices.Index(refs, samples[i].Ref)]
		}
		before = len(spy.seen())
		if err := direct.Append(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
		want := spy.mutations(before)
		gotRows, wantRows := describe(t, got), describe(t, want)
		for key, columns := range wantRows {
			if !maps.Equal(gotRows[key], columns) {
				t.Fatalf("row %q is\n%q, want\n%q", key, gotRows[key], columns)
			}
		}
		if len(gotRows) != len(wantRows) {
			t.Fatalf("%d rows, want %d", len(gotRows), len(wantRows))
		}
		for i := range got {
			if got[i].TableName != "projects/project/instances/instance/tables/prefix-METRIC" || got[i].AppProfileId != "profile" {
				t.Fatalf("request for table %q, app profile %q", got[i].TableName, got[i].AppProfileId)
			}
		}
	}
}

func TestAppenderRows(t *testing.T) {
	const base = 2 * series.Period
	now := base + 1000
	f := func(v float64) string { return fmt.Sprintf("%x", series.AppendFloat(nil, v)) }
	qualifier := func(delta uint32) string { return string(series.AppendQualifier(nil, delta)) }
	type row map[string]string
	tests := []struct {
		name    string
		samples func(ref func(string) bucketstore.Ref) []bucketstore.Sample
		want    map[string]row
	}{
		{"nothing", func(func(string) bucketstore.Ref) []bucketstore.Sample { return nil }, map[string]row{}},
		{
			"series take turns",
			func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				a, b := ref("a"), ref("b")
				return []bucketstore.Sample{{Ref: b, T: base, V: 1}, {Ref: a, T: base, V: 2}, {Ref: b, T: base + 2, V: 3}, {Ref: a, T: base + 1, V: 4}}
			},
			map[string]row{
				"b,0008589934592": {qualifier(0): "r0 8589934592000 " + f(1), qualifier(2): "r0 8589934594000 " + f(3)},
				"a,0008589934592": {qualifier(0): "r0 8589934592000 " + f(2), qualifier(1): "r0 8589934593000 " + f(4)},
			},
		},
		{
			"the last of a time wins, by any reference",
			func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				a := ref("a")
				return []bucketstore.Sample{{Ref: a, T: base + 5, V: 1}, {Ref: a, T: base + 7, V: 2}, {Ref: ref("a"), T: base + 5, V: 3}, {Ref: a, T: base + 6, V: 5}, {Ref: a, T: base + 7, V: 6}}
			},
			map[string]row{"a,0008589934592": {
				qualifier(5): "r0 8589934597000 " + f(3), qualifier(6): "r0 8589934598000 " + f(5), qualifier(7): "r0 8589934599000 " + f(6),
			}},
		},
		{
			"late cells have the time of arrival",
			func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				a := ref("a")
				return []bucketstore.Sample{{Ref: a, T: base - series.Period, V: 1}, {Ref: a, T: base - series.Period + 1, V: 2}, {Ref: a, T: base - 1, V: 3}, {Ref: a, T: base + 2<<23, V: 4}}
			},
			map[string]row{
				"a,0004294967296": {qualifier(0): "l 8589935592000 " + f(1), qualifier(1): "l 8589935592000 " + f(2), qualifier(1<<32 - 1): "r3 8589934591000 " + f(3)},
				"a,0008589934592": {qualifier(2 << 23): "l 8589935592000 " + f(4)},
			},
		},
		{
			"encoded values",
			func(ref func(string) bucketstore.Ref) []bucketstore.Sample {
				return []bucketstore.Sample{{Ref: ref("a"), T: base, V: 1, Value: []byte("kind")}, {Ref: ref("b"), T: base, V: 1, Value: []byte{}}}
			},
			map[string]row{"a,0008589934592": {qualifier(0): "r0 8589934592000 6b696e64"}, "b,0008589934592": {qualifier(0): "r0 8589934592000 "}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var spy spy
			s := bigtabletest.Open(t, spy.option())
			a := newAppender(t, s, now)
			if err := a.Append(t.Context(), tt.samples(func(key string) bucketstore.Ref { return a.Ref([]byte(key)) })); err != nil {
				t.Fatal(err)
			}
			got := describe(t, spy.mutations(0))
			if len(got) != len(tt.want) {
				t.Errorf("%d rows, want %d", len(got), len(tt.want))
			}
			for key, want := range tt.want {
				if !maps.Equal(got[key], want) {
					t.Errorf("row %s is\n%q, want\n%q", key, got[key], want)
				}
			}
		})
	}
}

// TestAppenderClock: the family of a sample is that of the time of each call.
func TestAppenderClock(t *testing.T) {
	var spy spy
	s := bigtabletest.Open(t, spy.option())
	var now int64
	a, err := s.NewAppender(series.Schema{}, func() time.Time { return time.UnixMilli(now) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := a.Ref([]byte("a"))
	for i := range int64(20) {
		now = i % 2 * (5 << 23)
		before := len(spy.seen())
		if err := a.Append(t.Context(), []bucketstore.Sample{{Ref: ref, T: 1}}); err != nil {
			t.Fatal(err)
		}
		got := spy.mutations(before)[0].Entries[0].Mutations[0].GetSetCell()
		if want := []string{"r0", "l"}[i%2]; got.FamilyName != want || got.TimestampMicros != max(now, 1)*1000 {
			t.Errorf("clock at %d: family %s, time %d, want family %s", now, got.FamilyName, got.TimestampMicros, want)
		}
	}
}

// failedSamples returns the positions that an Append reports.
func failedSamples(t *testing.T, err error) []int {
	t.Helper()
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) {
		t.Fatalf("Append: %v, want a *SamplesError", err)
	}
	return failed.Failed
}

func TestAppenderPartialFailure(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	s := bigtabletest.Open(t, bigtabletest.WithMutateRowsHook(func(key string) error {
		if broken.Load() && strings.HasPrefix(key, "bad") {
			return status.Error(codes.ResourceExhausted, "no room")
		}
		return nil
	}))
	a := newAppender(t, s, 0)
	bad, good := a.Ref([]byte("bad")), a.Ref([]byte("good"))
	samples := []bucketstore.Sample{{Ref: bad, T: 1}, {Ref: good, T: 1}, {Ref: a.Ref([]byte("bad")), T: 2}, {Ref: bad, T: 1, V: 2}, {Ref: bad, T: series.Period}}
	err := a.Append(t.Context(), samples)
	if got, want := failedSamples(t, err), []int{0, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("failed are %v, want %v", got, want)
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no room") {
		t.Errorf("Append: %v, want the error of the row", err)
	}
	if got := keys(scan(t, s, wholeTable(bucketstore.Metric))); !slices.Equal(got, []string{"good,0000000000000"}) {
		t.Errorf("rows %q, want only the good one", got)
	}
	broken.Store(false)
	if err := a.Append(t.Context(), samples); err != nil {
		t.Fatal(err)
	}
	if got := keys(scan(t, s, wholeTable(bucketstore.Metric))); len(got) != 3 {
		t.Errorf("after the repetition: rows %q, want three", got)
	}
}

// TestAppenderSizes: what Bigtable would refuse fails alone, and is not sent.
func TestAppenderSizes(t *testing.T) {
	tests := []struct {
		name string
		key  int
		// values are the sizes of the values of the sample's row.
		values []int
		want   string
	}{
		{name: "longest key", key: 4096 - 14, values: []int{8}},
		{name: "key too long", key: 4096 - 13, values: []int{8}, want: "4097 bytes"},
		{name: "largest value", key: 1, values: []int{10 << 20}},
		{name: "value too large", key: 1, values: []int{8, 10<<20 + 1}, want: "value has 10485761 bytes"},
		{name: "row too large", key: 1, values: slices.Repeat([]int{10 << 20}, 11), want: "mutation of more than 104857600"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var spy spy
			s := bigtabletest.Open(t, spy.option())
			a := newAppender(t, s, 0)
			samples := []bucketstore.Sample{{Ref: a.Ref([]byte("before")), T: 1}}
			subject := a.Ref([]byte(strings.Repeat("k", tt.key)))
			var want []int
			for i, n := range tt.values {
				want = append(want, len(samples))
				samples = append(samples, bucketstore.Sample{Ref: subject, T: int64(i), Value: make([]byte, n)})
			}
			samples = append(samples, bucketstore.Sample{Ref: a.Ref([]byte("behind")), T: 1})
			err := a.Append(t.Context(), samples)
			rows := describe(t, spy.mutations(0))
			if rows["before,0000000000000"] == nil || rows["behind,0000000000000"] == nil {
				t.Errorf("the other rows are not sent")
			}
			if tt.want == "" {
				if err != nil || len(rows) != 3 {
					t.Fatalf("Append: %v, %d rows, want 3", err, len(rows))
				}
				return
			}
			if got := failedSamples(t, err); !slices.Equal(got, want) || !strings.Contains(err.Error(), tt.want) || len(rows) != 2 {
				t.Errorf("Append: samples %v, %v, %d rows sent, want %v, %q and 2", got, err, len(rows), want, tt.want)
			}
		})
	}
}

// TestAppenderBatches: requests keep to the bounds, and positions of what failed
// are those in what was given to Append.
func TestAppenderBatches(t *testing.T) {
	var spy spy
	s := bigtabletest.Open(t, spy.option(), bigtabletest.WithServerOptions(answering(func(key string) error {
		if key == "last,0000000000000" || key == "07000,0000000000000" {
			return status.Error(codes.Internal, "broken row")
		}
		return nil
	})))
	a := newAppender(t, s, 0)
	var samples []bucketstore.Sample
	for i := range 12_000 {
		samples = append(samples, bucketstore.Sample{Ref: a.Ref(fmt.Appendf(nil, "%05d", i)), T: 1})
	}
	long := a.Ref([]byte("long"))
	for i := range int64(150_000) {
		samples = append(samples, bucketstore.Sample{Ref: long, T: i})
	}
	samples = append(samples, bucketstore.Sample{Ref: a.Ref([]byte("last")), T: 1}, bucketstore.Sample{Ref: long, T: 0, V: 2})
	err := a.Append(t.Context(), samples)
	if got, want := failedSamples(t, err), []int{7000, 162_000}; !slices.Equal(got, want) {
		t.Errorf("failed are %v, want %v", got, want)
	}
	cells := 0
	for _, req := range spy.mutations(0) {
		ops := 0
		for _, entry := range req.Entries {
			ops += len(entry.Mutations)
		}
		cells += ops
		if size := proto.Size(req); ops > 100_000 || len(req.Entries) > 5000 || len(req.Entries) > 1 && size > 2<<20 {
			t.Errorf("a request of %d rows, %d cells, %d bytes", len(req.Entries), ops, size)
		}
	}
	if want := 12_000 + 150_000 + 1 + 1; cells != want {
		t.Errorf("%d cells, want %d", cells, want)
	}
}

func TestAppenderDeadline(t *testing.T) {
	silent := spy{onRequest: func(ctx context.Context, _ proto.Message) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	t.Run("own timeout", func(t *testing.T) {
		s := bigtabletest.Open(t, silent.option(), bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.CallTimeout = 50 * time.Millisecond }))
		a := newAppender(t, s, 0)
		if err := a.Append(t.Context(), []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append: %v, want context.DeadlineExceeded", err)
		}
	})
	t.Run("deadline of the caller", func(t *testing.T) {
		a := newAppender(t, bigtabletest.Open(t, silent.option()), 0)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := a.Append(ctx, []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append: %v, want context.DeadlineExceeded", err)
		}
	})
	// The sealer relies on it: whatever the store and the caller allow.
	t.Run("a minute after the family was chosen", func(t *testing.T) {
		var left time.Duration
		looks := spy{onRequest: func(ctx context.Context, _ proto.Message) error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		}}
		s := bigtabletest.Open(t, looks.option(), bigtabletest.WithConfig(func(cfg *bigtable.Config) { cfg.CallTimeout = time.Hour }))
		a := newAppender(t, s, 0)
		if err := a.Append(t.Context(), []bucketstore.Sample{{Ref: a.Ref([]byte("a"))}}); err != nil || left <= 0 || left > time.Minute {
			t.Errorf("Append: %v, the request had %v left, want at most a minute", err, left)
		}
	})
}

func TestNewAppenderWithoutTable(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*bigtable.Config)
	}{
		{"no METRIC", func(cfg *bigtable.Config) { cfg.Tables = cfg.Tables[bucketstore.Meta:] }},
		{"no late family", func(cfg *bigtable.Config) {
			spec := &cfg.Tables[bucketstore.Metric]
			spec.Families = slices.DeleteFunc(slices.Clone(spec.Families), func(f bucketstore.FamilySpec) bool { return f.Name == series.FamilyLate })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := bigtabletest.Open(t, bigtabletest.WithConfig(tt.change))
			if _, err := s.NewAppender(series.Schema{}, time.Now, nil); !errors.Is(err, bucketstore.ErrTable) {
				t.Errorf("NewAppender: %v, want ErrTable", err)
			}
		})
	}
}

// TestAppenderConcurrently: calls share memory, not samples.
func TestAppenderConcurrently(t *testing.T) {
	s := bigtabletest.Open(t)
	a := newAppender(t, s, 0)
	const writers, rounds, size = 8, 20, 50
	var writing sync.WaitGroup
	for w := range writers {
		ref := a.Ref(fmt.Appendf(nil, "series_%d", w))
		other := a.Ref(fmt.Appendf(nil, "series_%d", w))
		writing.Go(func() {
			for r := range rounds {
				var samples []bucketstore.Sample
				for i := range size {
					samples = append(samples, bucketstore.Sample{Ref: []bucketstore.Ref{ref, other}[i%2], T: int64(r*size + i), V: float64(w*1e6 + r*size + i)})
				}
				if err := a.Append(t.Context(), samples); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	rows := scan(t, s, wholeTable(bucketstore.Metric))
	if len(rows) != writers {
		t.Fatalf("%d rows, want %d", len(rows), writers)
	}
	for w, row := range rows {
		if len(row.Cells) != rounds*size {
			t.Errorf("row %s has %d cells, want %d", row.Key, len(row.Cells), rounds*size)
		}
		for i, c := range row.Cells {
			if v, err := series.ParseFloat(c.Value); err != nil || v != float64(w*1e6+i) {
				t.Fatalf("row %s, cell %d: %v, %v", row.Key, i, v, err)
			}
		}
	}
}
