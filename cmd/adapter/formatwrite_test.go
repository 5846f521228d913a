package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// writeFormats writes the directories of the current format.
func writeFormats(t *testing.T) {
	for _, f := range []struct {
		name  string
		write func(*testing.T, string) []formatTexts
		// files must be in the directory, cells in the store.
		files, cells []string
	}{
		{"closed", writeClosed, []string{"FORMAT", "buffer/stamp"},
			[]string{"METRIC r0", "METRIC r1", "METRIC r2", "METRIC r3", "METRIC l", "METRIC c", "METRIC e", "METRIC 1h", "METRIC 5m", "METRIC d", "CURRENT v", "INDEX i", "META schema", "META metadata", "META delete",
				"encoding 1", "encoding 2", "encoding 3", "encoding 4", "encoding 5", "encoding 6", "encoding 128"}},
		{"killed", writeKilled, []string{"FORMAT", "buffer/*.log", "buffer/*.rows", "buffer/synced"},
			[]string{"METRIC c", "INDEX i", "META schema", "META log", "META delete"}},
		{"tenants", writeTenants, []string{"FORMAT"},
			[]string{"METRIC l", "METRIC c", "CURRENT v", "INDEX i", "META schema"}},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		texts := f.write(t, dir)
		for _, name := range f.files {
			if found, err := filepath.Glob(filepath.Join(dir, name)); err != nil || len(found) == 0 {
				t.Fatalf("%s: no %s", f.name, name)
			}
		}
		path := filepath.Join(currentFormat, f.name)
		packFormat(t, dir, path+".tar.gz")
		cells := cellsIn(t, dir)
		for _, family := range f.cells {
			if cells[family] == 0 {
				t.Fatalf("%s: no cells of %s among %v", f.name, family, cells)
			}
		}
		t.Logf("%s: cells %v", f.name, cells)
		var text strings.Builder
		for i := range texts {
			text.WriteString(texts[i].String())
		}
		if err := os.WriteFile(path+".golden", []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cellsIn counts the cells of each table and family, and of META by the first field of the key.
func cellsIn(t *testing.T, dir string) map[string]int {
	t.Helper()
	rows, err := openRows(dir, formatNow)
	if err != nil {
		t.Fatal(err)
	}
	cells := map[string]int{}
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		req := bucketstore.ScanRequest{Table: spec.Table, Rows: []series.RowRange{{}}}
		for _, f := range spec.Families {
			req.Families = append(req.Families, bucketstore.FamilyRange{Family: f.Name})
		}
		slices.SortFunc(req.Families, func(a, b bucketstore.FamilyRange) int { return cmp.Compare(a.Family, b.Family) })
		err := rows.Scan(t.Context(), req, func(row bucketstore.Row) error {
			for _, c := range row.Cells {
				kind := c.Family
				if spec.Table == bucketstore.Meta {
					kind, _, _ = strings.Cut(string(row.Key), ",")
				}
				cells[fmt.Sprintf("%v %s", spec.Table, kind)]++
				if c.Family == series.FamilyChunk {
					cells[fmt.Sprintf("encoding %d", c.Value[0])]++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	return cells
}

// formatTexts is what was written for a tenant, as text.
type formatTexts struct {
	tenant    string
	samples   map[string]map[int64]string // by labels and time
	labels    map[string]labels.Labels
	current   map[string]current.Sample
	exemplars []formatExemplar
	metadata  map[string]ingest.Metadata
	cells     string // of rollups and counts
}

type formatExemplar struct {
	labels labels.Labels
	exemplar.Exemplar
}

func newFormatTexts(tenant string) *formatTexts {
	return &formatTexts{
		tenant: tenant, samples: map[string]map[int64]string{}, labels: map[string]labels.Labels{},
		current: map[string]current.Sample{}, metadata: map[string]ingest.Metadata{},
	}
}

// add notes a batch, of which the last write wins.
func (x *formatTexts) add(batch []ingest.Series) {
	for _, s := range batch {
		key := s.Labels.String()
		if x.samples[key] == nil {
			x.samples[key], x.labels[key] = map[int64]string{}, s.Labels
		}
		note := func(c current.Sample, text string) {
			x.samples[key][c.T] = text
			if c.Labels = s.Labels; c.T >= x.current[key].T {
				x.current[key] = c
			}
		}
		for _, p := range s.Samples {
			note(current.Sample{T: p.T, V: p.V}, sampleText(p))
		}
		for _, h := range s.Histograms {
			note(current.Sample{T: h.T, H: h.H, FH: h.FH}, histogramSampleText(h))
		}
		for _, e := range s.Exemplars {
			x.exemplars = append(x.exemplars, formatExemplar{s.Labels, e})
		}
	}
}

// delete deletes the samples of a metric in [start, limit) from an open store, and notes that.
func (x *formatTexts) delete(t *testing.T, s *formatStore, name string, start, limit int64) {
	t.Helper()
	if err := s.Delete(t.Context(), start, limit-1, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)}); err != nil {
		t.Fatal(err)
	}
	isDeleted := func(ls labels.Labels, at int64) bool {
		return ls.Get(labels.MetricName) == name && start <= at && at < limit
	}
	for key, samples := range x.samples {
		maps.DeleteFunc(samples, func(at int64, _ string) bool { return isDeleted(x.labels[key], at) })
	}
	x.exemplars = slices.DeleteFunc(x.exemplars, func(e formatExemplar) bool { return isDeleted(e.labels, e.Ts) })
}

// String returns the text that readFormat is to find.
func (x *formatTexts) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "tenant %q\n", x.tenant)
	keys := slices.SortedFunc(maps.Keys(x.samples), func(a, b string) int { return labels.Compare(x.labels[a], x.labels[b]) })
	values := map[string][]string{}
	for _, key := range keys {
		text.WriteString(seriesText("series", x.labels[key]))
		for _, at := range slices.Sorted(maps.Keys(x.samples[key])) {
			text.WriteString(x.samples[key][at])
		}
		x.labels[key].Range(func(l labels.Label) { values[l.Name] = append(values[l.Name], l.Value) })
	}
	for _, key := range keys {
		c := x.current[key]
		if c.H != nil {
			c.V = c.H.Sum
		}
		if !value.IsStaleNaN(c.V) {
			text.WriteString(currentText(c))
		}
	}
	slices.SortStableFunc(x.exemplars, func(a, b formatExemplar) int {
		return cmp.Or(labels.Compare(a.labels, b.labels), cmp.Compare(a.Ts, b.Ts))
	})
	for _, e := range x.exemplars {
		text.WriteString(exemplarText(e.labels, e.Exemplar))
	}
	for _, family := range slices.Sorted(maps.Keys(x.metadata)) {
		text.WriteString(metadataText(x.metadata[family]))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		slices.Sort(values[name])
		fmt.Fprintf(&text, "label %q %q\n", name, slices.Compact(values[name]))
	}
	return text.String() + x.cells
}

// write appends batches to an open store and notes them.
func (x *formatTexts) write(t *testing.T, s *formatStore, batches ...[]ingest.Series) {
	t.Helper()
	for _, batch := range batches {
		x.add(batch) // before Append, which may change histograms
		var rejected ingest.Rejected
		if _, err := s.Append(t.Context(), batch, &rejected); err != nil {
			t.Fatal(err)
		}
		if err := rejected.Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// writeXOR stores a chunk of counter in Prometheus' encoding of floats, which is read, but
// which nothing writes to the embedded store.
func (x *formatTexts) writeXOR(t *testing.T, s *formatStore, schema series.Schema, window int64) {
	t.Helper()
	const n, interval = 4, 60_000
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		t.Fatal(err)
	}
	all := ingest.Series{Labels: ofName("counter")}
	for i := range int64(n) {
		p := ingest.Sample{T: window + i*interval, V: float64(i) / 3}
		app.Append(0, p.T, p.V)
		all.Samples = append(all.Samples, p)
	}
	x.add([]ingest.Series{all})
	seriesKey, err := schema.AppendSeriesKey(nil, all.Labels)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := series.Split(window)
	cell := bucketstore.ChunkCell(byte(chunkenc.EncXOR), 0, window, window+(n-1)*interval, c.Bytes())
	err = s.rows.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{
		Key: schema.AppendRowKey(nil, seriesKey, base),
		Ops: []bucketstore.Op{{Kind: bucketstore.SetCell, Family: cell.Family, Qualifier: cell.Qualifier, Time: cell.Time, Value: cell.Value}},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// writeRollups stores cells of rollups of a series and a day in two bases, and their counts. The
// rollups are of an earlier count, so no reader looks into them.
func (x *formatTexts) writeRollups(t *testing.T, s *formatStore, schema series.Schema, ls labels.Labels) {
	t.Helper()
	const dayMillis, base = 24 * 60 * 60 * 1000, 400 * series.Period
	seriesKey, err := schema.AppendSeriesKey(nil, ls)
	if err != nil {
		t.Fatal(err)
	}
	start := base / dayMillis * dayMillis
	for _, at := range []int64{start, base} {
		base, delta := series.Split(at)
		key, qual := schema.AppendRowKey(nil, seriesKey, base), series.AppendQualifier(nil, delta)
		cells := []bucketstore.Cell{
			{Family: rollup.OneHour.Family(), Qualifier: qual, Time: start + dayMillis + 1},
			{Family: rollup.FiveMinutes.Family(), Qualifier: qual, Time: start + dayMillis + 1},
			{Family: series.FamilyCount, Qualifier: qual, Time: start + dayMillis, Value: bucketstore.AppendSum(nil, 1)},
		}
		mut := bucketstore.Mutation{Key: key}
		for i := range cells {
			op := bucketstore.Op{Kind: bucketstore.SetCell, Family: cells[i].Family, Qualifier: qual, Time: cells[i].Time, Value: cells[i].Value}
			if op.Family == series.FamilyCount {
				op.Kind, cells[i].Value = bucketstore.Add, bucketstore.AppendSum(nil, 3)
			}
			mut.Ops = append(mut.Ops, op)
			x.cells += cellText(string(key), cells[i])
		}
		count := bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{mut.Ops[2]}}
		for _, m := range []bucketstore.Mutation{mut, count, count} {
			if err := s.rows.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{m}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// writeMetadata stores metadata of a family and notes it.
func (x *formatTexts) writeMetadata(t *testing.T, s *formatStore, m ingest.Metadata) {
	t.Helper()
	x.metadata[m.Family] = m
	var rejected ingest.Rejected
	if err := errors.Join(s.AppendMetadata(t.Context(), []ingest.Metadata{m}, &rejected), rejected.Err()); err != nil {
		t.Fatal(err)
	}
}

// writeClosed leaves a directory in which all samples are in tables: raw cells of direct
// mode, chunks, and chunks of late samples.
func writeClosed(t *testing.T, dir string) []formatTexts {
	x := newFormatTexts("")
	schema := formatSchema(t, "")
	for window := range int64(4) { // a raw family each
		now := formatNow - 2*series.IndexPeriod + window*series.Window
		s := openFormat(t, dir, formatOpening{schema: schema, now: now, direct: true})
		x.write(t, s, rawSeries(now))
		if window == 3 {
			x.write(t, s, rawSeries(now-series.Period)) // cells of l, in another row
			x.writeMetadata(t, s, newMetadata("raw", model.MetricTypeCounter, "requests", "Requests, by host.\nIn two lines."))
		}
		s.close(t)
	}

	s := openFormat(t, dir, formatOpening{schema: schema, now: formatNow})
	for window := int64(-2); window <= 0; window++ {
		x.write(t, s, chunkSeries(formatNow&^(series.Window-1)+window*series.Window))
	}
	// Both sides of a base, and of an index period.
	x.write(t, s, []ingest.Series{{Labels: labels.FromStrings("__name__", "edges"), Samples: []ingest.Sample{
		{T: 400*series.Period - 1, V: 1}, {T: 400 * series.Period, V: 2},
		{T: 400*series.Period + series.IndexPeriod - 1, V: 3}, {T: 400*series.Period + series.IndexPeriod, V: 4},
	}}})
	x.write(t, s, awkwardSeries())
	x.writeXOR(t, s, schema, formatNow&^(series.Window-1)-5*series.Window)
	x.writeRollups(t, s, schema, labels.FromStrings("__name__", "edges"))
	// Late: beside what is there, and over it.
	late := formatNow&^(series.Window-1) - 2*series.Window
	x.write(t, s,
		[]ingest.Series{{Labels: ofName("counter"), Samples: []ingest.Sample{{T: late + 1, V: -1}, {T: late + 60_000, V: -2}}}},
		[]ingest.Series{{Labels: ofName("integer_histogram"), Histograms: []ingest.Histogram{{T: late + 1, H: tsdbutil.GenerateTestHistogram(99)}}}},
		[]ingest.Series{{Labels: ofName("counter"), Samples: []ingest.Sample{{T: late + 1, V: -3}}}})
	x.writeMetadata(t, s, newMetadata("counter", model.MetricTypeCounter, "", "Of chunks."))
	// Deletions that have not removed anything yet: of raw cells and an exemplar, and of a part of a chunk, in which a sample is written again.
	raw := formatNow - 2*series.IndexPeriod + series.Window
	x.delete(t, s, "raw", raw+1, raw+4)
	x.delete(t, s, "counter", late+1_000_000, late+2_000_000)
	x.write(t, s, []ingest.Series{{Labels: ofName("counter"), Samples: []ingest.Sample{{T: late + 1_000_000, V: -4}}}})
	s.close(t)
	return []formatTexts{*x}
}

// writeKilled leaves a directory as kill -9 does: samples in the log, some of them also in
// tables, and rows that the store did not take.
func writeKilled(t *testing.T, dir string) []formatTexts {
	x := newFormatTexts("")
	live := filepath.Join(t.TempDir(), "live")
	choosy := func(rows bucketstore.Store) bucketstore.Store { return refusingStore{rows} }
	s := openFormat(t, live, formatOpening{schema: formatSchema(t, ""), now: formatNow, wrap: choosy, fsync: time.Millisecond})
	refused := func(at int64) []ingest.Series {
		return []ingest.Series{{Labels: ofName("refused"), Samples: []ingest.Sample{{T: at, V: float64(at)}, {T: at + 1, V: math.Copysign(0, -1)}}}}
	}
	window := formatNow &^ (series.Window - 1)
	x.write(t, s, chunkSeries(window-2*series.Window), refused(window-2*series.Window))
	x.write(t, s, chunkSeries(window-series.Window), refused(window-series.Window))
	if err := s.buffer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.write(t, s, chunkSeries(window), refused(window), awkwardSeries())
	x.write(t, s, []ingest.Series{{Labels: ofName("counter"), Samples: []ingest.Sample{{T: window - series.Window + 1, V: -1}}}}) // late
	// A deletion of what is in a table, and of what is in the log on one side of it.
	x.delete(t, s, "counter", window-series.Window, window+1_000_000)
	x.write(t, s, []ingest.Series{{Labels: ofName("counter"), Samples: []ingest.Sample{{T: window, V: -2}}}})
	synced := filepath.Join(live, "buffer", "synced")
	for _, err := os.Stat(synced); err != nil; _, err = os.Stat(synced) {
		time.Sleep(time.Millisecond)
	}
	// The adapter has nothing to do: what is there now is what kill -9 would leave.
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	s.close(t)
	return []formatTexts{*x}
}

// writeTenants leaves a directory of two tenants that have series of the same labels.
func writeTenants(t *testing.T, dir string) (all []formatTexts) {
	for i, tenant := range []string{"a", "a,b"} {
		x := newFormatTexts(tenant)
		for _, direct := range []bool{true, false} {
			s := openFormat(t, dir, formatOpening{schema: formatSchema(t, tenant), now: formatNow, direct: direct})
			at := formatNow - 4*series.Window
			if !direct {
				at = formatNow
			}
			x.write(t, s, []ingest.Series{
				{Labels: labels.FromStrings("__name__", "up", "host", "h"), Samples: []ingest.Sample{{T: at, V: float64(i)}, {T: at + 1, V: math.Pi}}},
				{Labels: labels.FromStrings("__name__", "own", "number", fmt.Sprint(i)), Samples: []ingest.Sample{{T: at, V: float64(i)}}},
			})
			x.writeMetadata(t, s, newMetadata("up", model.MetricTypeGauge, "", "Of "+tenant))
			s.close(t)
		}
		all = append(all, *x)
	}
	return all
}

// refusingStore takes all rows but those of the metric refused.
type refusingStore struct{ bucketstore.Store }

func (s refusingStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	failed := make(map[int]error)
	var taken []bucketstore.Mutation
	for i, m := range muts {
		if bytes.HasPrefix(m.Key, []byte("refused,")) && table == bucketstore.Metric {
			failed[i] = bucketstore.ErrRefused
			continue
		}
		taken = append(taken, m)
	}
	if err := s.Store.Apply(ctx, table, taken); err != nil || len(failed) == 0 {
		return err
	}
	return &bucketstore.RowsError{Failed: failed}
}

func newMetadata(family string, kind model.MetricType, unit, help string) ingest.Metadata {
	return ingest.Metadata{Family: family, Metadata: metadata.Metadata{Type: kind, Unit: unit, Help: help}}
}

func ofName(name string) labels.Labels {
	return labels.FromStrings("__name__", name, "host", "one", "job", "chunks")
}

// awkwardFloats are values that arithmetic, text or a careless codec would change.
func awkwardFloats() (all []float64) {
	for _, bits := range []uint64{
		0, 1 << 63, value.NormalNaN, 0x7ff0000000000001, 0xfff8000000abcdef, math.Float64bits(math.Inf(1)), math.Float64bits(math.Inf(-1)),
		1, math.Float64bits(-math.MaxFloat64), math.Float64bits(0.1), value.StaleNaN,
	} {
		all = append(all, math.Float64frombits(bits))
	}
	return all
}

// rawSeries are series of direct mode, with everything that a cell may hold.
func rawSeries(at int64) []ingest.Series {
	floats := ingest.Series{Labels: labels.FromStrings("__name__", "raw", "host", "one")}
	for i, v := range awkwardFloats() {
		floats.Samples = append(floats.Samples, ingest.Sample{T: at + int64(i), V: v})
	}
	floats.Exemplars = []exemplar.Exemplar{
		{Labels: labels.FromStrings("trace_id", "abc"), Value: math.Inf(1), Ts: at, HasTs: true},
		{Value: 2, Ts: at + 1, HasTs: true},
	}
	since := ingest.Series{Labels: labels.FromStrings("__name__", "raw", "host", "since"), Samples: []ingest.Sample{{T: at, V: 1, ST: at - 500}, {T: at + 1, V: 2, ST: at + 1}}}
	return []ingest.Series{floats, since, {Labels: labels.FromStrings("__name__", "raw_histogram"), Histograms: []ingest.Histogram{
		{T: at, H: tsdbutil.GenerateTestHistogram(1)},
		{T: at + 1, H: tsdbutil.GenerateTestGaugeHistogram(2), ST: at - 1},
		{T: at + 2, FH: tsdbutil.GenerateTestFloatHistogram(3)},
		{T: at + 3, H: tsdbutil.GenerateTestCustomBucketsHistogram(4)},
		{T: at + 4, FH: tsdbutil.GenerateTestCustomBucketsFloatHistogram(5)},
		{T: at + 5, H: &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}},
	}}}
}

// chunkSeries are series of buffered mode in the window at window: values of each kind that
// chunks encode in a way of their own.
func chunkSeries(window int64) (all []ingest.Series) {
	const samples, interval = 15, 500_000
	random := rand.New(rand.NewPCG(1, uint64(window)))
	add := func(name string, value func(i int64) ingest.Sample) {
		s := ingest.Series{Labels: ofName(name)}
		for i := range int64(samples) {
			p := value(i)
			p.T += window + i*interval
			s.Samples = append(s.Samples, p)
		}
		all = append(all, s)
	}
	add("counter", func(i int64) ingest.Sample { return ingest.Sample{V: float64(1000 + i*i)} })
	add("decimals", func(i int64) ingest.Sample { return ingest.Sample{V: float64(random.IntN(1000)) / 100} })
	add("constant", func(int64) ingest.Sample { return ingest.Sample{V: 42} })
	add("noise", func(i int64) ingest.Sample {
		return ingest.Sample{V: math.Float64frombits(random.Uint64()), T: random.Int64N(interval)}
	})
	awkward := awkwardFloats()
	add("awkward", func(i int64) ingest.Sample { return ingest.Sample{V: awkward[i%int64(len(awkward))]} })
	add("since", func(i int64) ingest.Sample { return ingest.Sample{V: float64(i), ST: window + i/5} })
	for name, of := range map[string]func(i int64) ingest.Histogram{
		"float_since": func(i int64) ingest.Histogram {
			return ingest.Histogram{FH: tsdbutil.GenerateTestFloatHistogram(i), ST: window - 1}
		},
		"integer_histogram": func(i int64) ingest.Histogram { return ingest.Histogram{H: tsdbutil.GenerateTestHistogram(i)} },
		"float_histogram":   func(i int64) ingest.Histogram { return ingest.Histogram{FH: tsdbutil.GenerateTestFloatHistogram(i)} },
		"gauge_histogram": func(i int64) ingest.Histogram {
			return ingest.Histogram{H: tsdbutil.GenerateTestGaugeHistogram(10 - i), ST: window}
		},
		"custom_histogram": func(i int64) ingest.Histogram {
			return ingest.Histogram{H: tsdbutil.GenerateTestCustomBucketsHistogram(i)}
		},
		"mixed": func(i int64) ingest.Histogram { return ingest.Histogram{FH: tsdbutil.GenerateTestFloatHistogram(i)} },
	} {
		s := ingest.Series{Labels: ofName(name)}
		for i := range int64(3) {
			h := of(i)
			h.T = window + i*interval
			s.Histograms = append(s.Histograms, h)
		}
		if name == "mixed" {
			s.Samples = []ingest.Sample{{T: window + 1, V: 1}, {T: window + interval + 1, V: 2}}
		}
		all = append(all, s)
	}
	return all
}

// awkwardSeries have labels that keys must escape or shorten.
func awkwardSeries() []ingest.Series {
	var all []ingest.Series
	for i, ls := range []labels.Labels{
		labels.FromStrings("__name__", "escapes", "comma", "a,b", "line", "a\nb", "nul", "a\x00b", "slash", `a\b`, "equals", "a=b", "utf8", "ä€𝄞", "host", `h,\`),
		labels.FromStrings("__name__", "like_a_base", "1717986918400", "1717986918400"),
		labels.FromStrings("__name__", "long", "text", strings.Repeat("0123456789", 60)),
	} {
		all = append(all, ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: formatNow + int64(i), V: float64(i)}}})
	}
	return all
}
