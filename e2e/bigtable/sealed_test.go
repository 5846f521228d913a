package bigtable

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	metrics "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/e2e/harness"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/seal"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/merge"
	"github.com/promtable/promtable/series/seriestest"
)

// A sealing is a store in the emulator and series that are written to it by a
// clock of the test.
type sealing struct {
	store  *bigtable.Store
	schema series.Schema
	now    int64
	direct *bucketstore.Direct
	refs   []bucketstore.Ref
	names  []string
	next   []func() float64
	want   []map[int64]uint64 // bits, by series
}

const (
	sealedWindows = 3
	sealedStep    = 15_000
	// sealedStart is after now: so that deadlines by this clock have not passed.
	sealedStart = 900*series.Period + 10*series.Window
)

func openSealing(t *testing.T, seed uint64) *sealing {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	store, err := bigtable.Open(ctx, bigtable.Config{
		Project: "e2e", Instance: "e2e", EmulatorHost: harness.StartEmulator(t), Tables: bucketstore.Tables(bucketstore.Retention{}), CreateTables: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	schema, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &sealing{store: store, schema: schema}
	s.direct = bucketstore.NewDirect(store, schema, s.clock, nil)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for i := range 40 {
		s.add(t, fmt.Sprintf("m%d", i), generators()[i%len(generators())](rnd))
	}
	return s
}

func (s *sealing) clock() time.Time { return time.UnixMilli(s.now) }

// generators are realistic kinds of series.
func generators() []func(*rand.Rand) func() float64 {
	counter := func(most int64) func(*rand.Rand) func() float64 {
		return func(rnd *rand.Rand) func() float64 {
			v := int64(0)
			return func() float64 {
				v += rnd.Int64N(most)
				return float64(v)
			}
		}
	}
	return []func(*rand.Rand) func() float64{
		counter(1000), // requests
		counter(2),    // errors
		func(rnd *rand.Rand) func() float64 { // seconds of CPU, in hundredths
			v := int64(0)
			return func() float64 {
				v += rnd.Int64N(1500)
				return float64(v) / 100
			}
		},
		func(rnd *rand.Rand) func() float64 { // pages of memory
			v := int64(1 << 16)
			return func() float64 {
				v = max(0, v+rnd.Int64N(201)-100)
				return float64(v * 4096)
			}
		},
		func(*rand.Rand) func() float64 { return func() float64 { return 1 } },
	}
}

// add makes a series findable in the index period of the test.
func (s *sealing) add(t *testing.T, name string, next func() float64) {
	key, err := s.schema.AppendSeriesKey(nil, labels.FromStrings(labels.MetricName, name))
	if err != nil {
		t.Fatal(err)
	}
	period := series.PeriodOf(sealedStart)
	posting := append(s.schema.AppendPostingPrefix(nil, labels.MetricName, name, period), key...)
	value := s.schema.AppendValueKey(nil, labels.MetricName, name, period)
	set := func(key []byte, text string) bucketstore.Mutation {
		return bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.FamilyIndex, Qualifier: []byte(series.QualifierIndex),
			Time: period + series.IndexPeriod, Value: []byte(text),
		}}}
	}
	muts := []bucketstore.Mutation{set(value, name), set(posting, "")}
	if err := s.store.Apply(t.Context(), bucketstore.Index, muts); err != nil {
		t.Fatal(err)
	}
	s.refs = append(s.refs, s.direct.Ref(key))
	s.names = append(s.names, name)
	s.next = append(s.next, next)
	s.want = append(s.want, make(map[int64]uint64))
}

// write writes a sample of each series at each step in [start, limit), some steps
// at once.
func (s *sealing) write(t *testing.T, start, limit int64) {
	const atOnce = 20
	var batch []bucketstore.Sample
	for at, n := start, 1; at < limit; at, n = at+sealedStep, n+1 {
		for i, ref := range s.refs {
			v := s.next[i]()
			batch = append(batch, bucketstore.Sample{Ref: ref, T: at, V: v})
			s.want[i][at] = math.Float64bits(v)
		}
		if s.now = at; n%atOnce == 0 || at+sealedStep >= limit {
			if err := s.direct.Append(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

// overwrite writes a few samples again.
func (s *sealing) overwrite(t *testing.T, at int64, v float64) {
	for i, ref := range s.refs {
		if err := s.direct.Append(t.Context(), []bucketstore.Sample{{Ref: ref, T: at, V: v}}); err != nil {
			t.Fatal(err)
		}
		s.want[i][at] = math.Float64bits(v)
	}
}

// check compares all samples with what was written. It returns the number of cells of each
// family, and the bytes of their qualifiers and values.
func (s *sealing) check(t *testing.T) (cells map[string]int, size int) {
	t.Helper()
	cells = make(map[string]int)
	base, _ := series.Split(sealedStart)
	for i, ref := range s.refs {
		var rs merge.Row
		rs.Reset(base, base, base+series.Period, merge.Options{})
		got := make(map[int64]uint64)
		err := s.store.Scan(t.Context(), bucketstore.ScanRequest{
			Table: bucketstore.Metric,
			Rows:  []series.RowRange{series.SingleRow(s.schema.AppendRowKey(nil, ref.SeriesKey(), base))},
			Families: []bucketstore.FamilyRange{
				{Family: series.FamilyChunk}, {Family: series.FamilyLate},
				{Family: series.FamilyR0}, {Family: series.FamilyR1}, {Family: series.FamilyR2}, {Family: series.FamilyR3},
			},
		}, func(row bucketstore.Row) error {
			for _, c := range row.Cells {
				cells[c.Family]++
				size += len(c.Qualifier) + len(c.Value)
				if err := addCell(&rs, c); err != nil {
					return err
				}
			}
			samples, _, err := seriestest.ReadRow(&rs)
			for _, s := range samples {
				got[s.T] = math.Float64bits(s.V.Float)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for at, bits := range s.want[i] {
			if found, ok := got[at]; !ok || found != bits {
				t.Fatalf("%s at %d: found %v %x, want %x", s.names[i], at, ok, found, bits)
			}
		}
		if len(got) != len(s.want[i]) {
			t.Fatalf("%s has %d samples, want %d", s.names[i], len(got), len(s.want[i]))
		}
	}
	return cells, size
}

func addCell(rs *merge.Row, c bucketstore.Cell) error {
	if c.Family != series.FamilyChunk {
		return rs.AddRaw(c.Family, c.Qualifier, bytes.Clone(c.Value))
	}
	chunk, err := chunk.Parse(bytes.Clone(c.Qualifier), bytes.Clone(c.Value))
	rs.AddChunk(chunk)
	return err
}

// TestSealed writes some windows to the emulator, as an adapter without a buffer does,
// seals them, and measures their size.
func TestSealed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := openSealing(t, seed)
	s.write(t, sealedStart, sealedStart+sealedWindows*series.Window)
	samples := len(s.want) * len(s.want[0])
	cells, size := s.check(t)
	if cells[series.FamilyChunk] > 0 || cells[series.FamilyLate] > 0 {
		t.Fatalf("cells by family before anything is sealed or late: %v", cells)
	}
	t.Logf("%d samples in %d series take %.2f bytes each as raw cells, of qualifier and value", samples, len(s.want), float64(size)/float64(samples))

	reg := metrics.NewRegistry()
	sealer := seal.New(seal.Config{Store: s.store, Tenants: jobs.NamedTenants(s.schema), Now: s.clock, Holder: "e2e", RowsPerSecond: 1e6, Registerer: reg})
	for w := range int64(sealedWindows) {
		s.now = sealedStart + (w+2)*series.Window + series.Window/2
		s.overwrite(t, sealedStart+w*series.Window+sealedStep, -1) // too late for this turn
		if err := sealer.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.check(t)
	}
	rows, chunks := counterOf(t, reg, "adapter_seal_rows_total"), counterOf(t, reg, "adapter_seal_chunks_total")
	if cells, _ = s.check(t); cells[series.FamilyLate] == 0 || len(cells) != 2 {
		t.Errorf("cells by family before late samples are sealed: %v", cells)
	}
	s.now += series.Window
	if err := sealer.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	cells, size = s.check(t)
	if len(cells) != 1 || cells[series.FamilyChunk] != sealedWindows*len(s.want) {
		t.Errorf("cells by family when all is sealed: %v", cells)
	}
	perSample := float64(size) / float64(samples)
	t.Logf("sealed: %.2f bytes a sample, of qualifier and value; %g row mutations and %g chunks, %.5f mutations a sample", perSample, rows, chunks, rows/float64(samples))
	if perSample > 3 {
		t.Errorf("%.2f bytes a sample, want 3 at most", perSample)
	}
	if want := float64(sealedWindows * len(s.want)); rows != want {
		t.Errorf("%g row mutations, want one for each series and window, %g", rows, want)
	}
}

func counterOf(t *testing.T, reg *metrics.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
