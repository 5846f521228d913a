package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

var updateFormat = flag.Bool("update", false, "write the golden directory of the current format anew, and what is in it")

// currentFormat has directories of the stored format, as a stop or kill -9 leaves them. The folders
// beside it are those of formats that earlier releases wrote, and that this version still reads.
//
//	NAME.tar.gz   the directory
//	NAME.golden   what was written to it
//
// A folder is never changed once its format is released, see e2e/project: TestReleasedFormats. A change of
// the format needs a folder of its own, which -update writes.
const currentFormat = "testdata/format-1.0"

// formatNumbers are the numbers of currentFormat by what has them, as docs/upgrade.md has them in its table.
var formatNumbers = map[string]string{
	"`FORMAT`, the directory of the embedded store": pebble.Format,
	"`META/schema`, the tables":                     fmt.Sprint(meta.FormatVersion),
	"segments of the log":                           "3",
	"rows set aside":                                "3",
	"the point of sync of the log":                  "1, 2",
	"`SNAPSHOT`":                                    "2",
}

// formatNow is the clock of the tests: in a window, an index period and a base that began a
// while ago, in 2024. CURRENT forgets samples, so the clock stands.
const formatNow = 400*series.Period + 3*series.IndexPeriod + 100*series.Window + series.Window/2

// A formatStore is a directory of the embedded store, open, with a clock of its own.
type formatStore struct {
	*engine.Engine
	rows bucketstore.Store
	// buffer is nil in direct mode.
	buffer *buffer.Buffer
}

// A formatOpening says how to open a formatStore.
type formatOpening struct {
	schema series.Schema
	now    int64
	direct bool
	// wrap, if set, wraps the store.
	wrap func(bucketstore.Store) bucketstore.Store
	// fsync is that of buffer.Config.
	fsync time.Duration
}

// formatSchema has the tenant, if it is not empty, and the resource label host.
func formatSchema(t *testing.T, tenant string) series.Schema {
	t.Helper()
	schema, err := series.NewSchema([]string{"host"})
	if err == nil && tenant != "" {
		schema, err = schema.ForTenant(tenant)
	}
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// openRows opens the tables alone.
func openRows(dir string, now int64) (bucketstore.Store, error) {
	return pebble.Open(pebble.Config{Dir: dir, Tables: bucketstore.Tables(bucketstore.Retention{}), Now: func() time.Time { return time.UnixMilli(now) }})
}

// openFormat opens a directory, as the adapter does.
func openFormat(t *testing.T, dir string, o formatOpening) *formatStore {
	t.Helper()
	s := new(formatStore)
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	now := func() time.Time { return time.UnixMilli(o.now) }
	s.rows, err = openRows(dir, o.now)
	must()
	if o.wrap != nil {
		s.rows = o.wrap(s.rows)
	}
	terms := buffer.Terms{Location: "--storage.path=data", Now: now}
	terms.Store, err = meta.Open(t.Context(), s.rows, o.schema, now)
	must()
	cfg := engine.Config{
		Store: s.rows, Schema: o.schema, Now: now, MaxFuture: engine.Unbounded, CurrentInterval: time.Hour,
	}
	logDir := filepath.Join(dir, "buffer")
	var records *deletion.Records
	openRecords := func() {
		t.Helper()
		records, err = deletion.Open(t.Context(), deletion.Config{Meta: terms.Store, Schema: o.schema, Now: now})
		must()
		cfg.Deletions = records
	}
	if o.direct {
		err = buffer.CheckUnused(t.Context(), logDir, terms)
		must()
		openRecords()
		direct := bucketstore.NewDirect(s.rows, o.schema, now, nil)
		direct.OnArrival(records.Arrival)
		cfg.Appender = direct
	} else {
		var held *buffer.Dir
		held, err = buffer.OpenDir(logDir, now())
		must()
		err = held.Bind(t.Context(), terms)
		must()
		openRecords()
		s.buffer, err = buffer.Open(t.Context(), held, buffer.Config{
			Store: s.rows, Schema: o.schema, Now: now, FsyncInterval: o.fsync, SweepInterval: time.Hour, Barriers: records.Barriers(),
		})
		must()
		err = records.SetBuffer(t.Context(), s.buffer)
		must()
		cfg.Store, cfg.Appender = s.buffer, s.buffer
	}
	s.Engine, err = engine.New(cfg)
	must()
	return s
}

// close stops as the adapter does.
func (s *formatStore) close(t *testing.T) {
	t.Helper()
	err := s.Engine.Close(t.Context())
	if s.buffer != nil {
		err = errors.Join(err, s.buffer.Close())
	} else {
		err = errors.Join(err, s.rows.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFormats: directories of the stored format are opened, and have every sample, bit for bit.
func TestFormats(t *testing.T) {
	if *updateFormat {
		writeFormats(t)
	}
	packed, err := filepath.Glob("testdata/format-*/*.tar.gz")
	if err != nil || len(packed) == 0 {
		t.Fatalf("directories %q: %v", packed, err)
	}
	for _, path := range packed {
		name := strings.TrimSuffix(path, ".tar.gz")
		t.Run(strings.TrimPrefix(name, "testdata/"), func(t *testing.T) {
			dir := unpackFormat(t, path)
			want, err := os.ReadFile(name + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			// Twice: the first start has replayed the log.
			for _, start := range []string{"the first start", "the second start"} {
				if got := readFormat(t, dir, formatTenants(string(want))); got != string(want) {
					t.Fatalf("%s: %s", start, firstDifference(got, string(want)))
				}
			}
			if len(formatTenants(string(want))) > 1 {
				wantRefused(t, dir, "it was made with tenants; start with --tenancy")
				return
			}
			countByQuery(t, unpackFormat(t, path), string(want))
		})
	}
}

// TestFormatNumbers: what this version writes has the numbers of currentFormat, and so has docs/upgrade.md.
func TestFormatNumbers(t *testing.T) {
	last := func(dir, pattern string, offset int) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		content, err := os.ReadFile(found[0])
		if err != nil || len(content) <= offset {
			t.Fatalf("%s has %d bytes: %v", found[0], len(content), err)
		}
		return fmt.Sprint(content[offset])
	}
	const version = 15 // where magic has its last byte
	made := filepath.Join(t.TempDir(), "data")
	writeKilled(t, made)
	for what, got := range map[string]string{
		"segments of the log":          last(made, "buffer/*.log", version),
		"rows set aside":               last(made, "buffer/*.rows", version),
		"the point of sync of the log": last(made, "buffer/synced", version),
	} {
		if !slices.Contains(strings.Split(formatNumbers[what], ", "), got) {
			t.Errorf("%s has version %s: a new folder in testdata, and formatNumbers, must say so", what, got)
		}
	}
	text, err := os.ReadFile(filepath.Join(made, "FORMAT"))
	if want := "promtable pebble format " + formatNumbers["`FORMAT`, the directory of the embedded store"] + "\n"; err != nil || string(text) != want {
		t.Errorf("FORMAT has %q, want %q: %v", text, want, err)
	}
	page, err := os.ReadFile("../../docs/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	for what, number := range formatNumbers {
		if row := fmt.Sprintf("| %s | %s |", what, number); !strings.Contains(string(page), row) {
			t.Errorf("docs/upgrade.md has no row %q", row)
		}
	}
}

// formatTenants returns the tenants in the text of a directory.
func formatTenants(text string) (tenants []string) {
	for line := range strings.Lines(text) {
		if quoted, ok := strings.CutPrefix(line, "tenant "); ok {
			tenant, err := strconv.Unquote(strings.TrimSpace(quoted))
			if err != nil {
				panic(err)
			}
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// countByQuery starts the adapter with its usual flags and clock, and wants all samples but
// staleness markers, which PromQL does not show.
func countByQuery(t *testing.T, dir, text string) {
	t.Helper()
	a := startWithUsage(t, "--storage.path="+dir, "--storage.min-free-space=0", "--self-scrape-interval=0s", "--schema.resource-label=host")
	want := map[string]int{} // by metric name
	var name string
	for line := range strings.Lines(text) {
		if m := regexp.MustCompile(`^series {.*__name__="(\w+)"`).FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		if strings.HasPrefix(line, "sample ") && !strings.Contains(line, fmt.Sprintf("%x", uint64(value.StaleNaN))) {
			want[name]++
		}
	}
	if len(want) == 0 {
		t.Fatal("no samples are expected")
	}
	for name, n := range want {
		a.wantValue(t, fmt.Sprintf(`sum(count_over_time(%s[20w] @ %d))`, name, formatNow/1000+3600), fmt.Sprint(n))
	}
}

// wantRefused runs the adapter, and wants that it ends with an error that contains text.
func wantRefused(t *testing.T, dir, text string) {
	t.Helper()
	o, err := parseFlags([]string{"--storage.path=" + dir, "--web.listen-address=127.0.0.1:0", "--schema.resource-label=host"})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), o, log.NewNopLogger()); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the start ends with\n%v\nwant\n%s", err, text)
	}
}

// TestFormatsOfOtherVersions: what another version may have written is refused by its
// number, with what to do, and stays as it is.
func TestFormatsOfOtherVersions(t *testing.T) {
	edit := func(path string, offset int, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			found, err := filepath.Glob(filepath.Join(dir, path))
			if err != nil || len(found) == 0 {
				t.Fatalf("no %s: %v", path, err)
			}
			content, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			copy(content[offset:], text)
			if err := os.WriteFile(found[0], content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		name, packed string
		change       func(t *testing.T, dir string)
		want         []string
		// unchanged are the files that the refused start must not change.
		unchanged string
	}{
		{"the store", "closed", edit("FORMAT", len("promtable pebble format "), "4"),
			[]string{`FORMAT says "promtable pebble format 4"`, `this version reads "promtable pebble format 3" only`, "start with a new --storage.path, or with the version that wrote it"}, "*"},
		{"a store of before", "closed", edit("FORMAT", len("promtable pebble format "), "2"),
			[]string{`FORMAT says "promtable pebble format 2"`, `this version reads "promtable pebble format 3" only`, "start with a new --storage.path, or with the version that wrote it"}, "*"},
		{"the log", "killed", edit("buffer/*.log", 15, "\x04"),
			[]string{"a log of version 4, this adapter reads version 3; use the version that wrote it"}, "buffer/*.[lr]o*"},
		{"a log of before", "killed", edit("buffer/*.log", 15, "\x02"),
			[]string{"a log of version 2, this adapter reads version 3; use the version that wrote it"}, "buffer/*.[lr]o*"},
		{"rows set aside", "killed", edit("buffer/*.rows", 15, "\x04"),
			[]string{".rows", "a log of version 4, this adapter reads version 3; use the version that wrote it"}, "buffer/*.[lr]o*"},
		{"synced", "killed", edit("buffer/synced", 15, "\x03"),
			[]string{"synced has version 3, this adapter reads versions 1 and 2; use the version that wrote it"}, "buffer/*.[lr]o*"},
		{"the schema", "closed", setSchema(`{"format":2,"resource_labels":[{"host":"changed"}]}`),
			[]string{"format 2, this adapter reads format 1; use the version that wrote it"}, "buffer/*"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := unpackFormat(t, filepath.Join(currentFormat, tt.packed+".tar.gz"))
			tt.change(t, dir)
			before := hashFiles(t, dir, tt.unchanged)
			for _, want := range tt.want {
				wantRefused(t, dir, want)
			}
			if after := hashFiles(t, dir, tt.unchanged); !maps.Equal(before, after) {
				t.Errorf("the files\n%q\nbecame\n%q", before, after)
			}
		})
	}
}

// setSchema replaces the schema in META.
func setSchema(text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		rows, err := openRows(dir, formatNow)
		if err != nil {
			t.Fatal(err)
		}
		cell, err := meta.ReadCell(t.Context(), rows, series.MetaSchema)
		if err != nil {
			t.Fatal(err)
		}
		_, err = meta.CompareAndSet(t.Context(), rows, series.MetaSchema, cell, meta.Cell{Value: []byte(text), Time: formatNow})
		if err := errors.Join(err, rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// hashFiles returns the content of files of a directory, but for locks, by name.
func hashFiles(t *testing.T, dir, pattern string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || info.IsDir() || strings.EqualFold(filepath.Base(path), "lock") || filepath.Base(path) == "owner" {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		contents[path] = string(content)
	}
	return contents
}

// readFormat opens a directory, and returns all that readers get from it, as text.
func readFormat(t *testing.T, dir string, tenants []string) string {
	t.Helper()
	var text strings.Builder
	for _, tenant := range tenants {
		s := openFormat(t, dir, formatOpening{schema: formatSchema(t, tenant), now: formatNow})
		fmt.Fprintf(&text, "tenant %q\n", tenant)
		s.readSamples(t, &text)
		s.readCurrent(t, &text)
		s.readExemplars(t, &text)
		entries, err := s.Metadata(t.Context(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range entries {
			text.WriteString(metadataText(m))
		}
		s.readLabels(t, &text)
		s.readRollups(t, &text)
		s.close(t)
	}
	return text.String()
}

func matchAll() *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".*")
}

func (s *formatStore) readSamples(t *testing.T, text io.StringWriter) {
	t.Helper()
	q, err := s.Querier(0, series.MaxTime)
	if err != nil {
		t.Fatal(err)
	}
	set := q.Select(t.Context(), true, nil, matchAll())
	for set.Next() {
		text.WriteString(seriesText("series", set.At().Labels()))
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			switch kind {
			case chunkenc.ValFloat:
				at, v := it.At()
				text.WriteString(sampleText(ingest.Sample{T: at, V: v, ST: it.AtST()}))
			case chunkenc.ValHistogram:
				at, h := it.AtHistogram(nil)
				text.WriteString(histogramSampleText(ingest.Histogram{T: at, ST: it.AtST(), H: h}))
			case chunkenc.ValFloatHistogram:
				at, fh := it.AtFloatHistogram(nil)
				text.WriteString(histogramSampleText(ingest.Histogram{T: at, ST: it.AtST(), FH: fh}))
			}
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
}

func (s *formatStore) readCurrent(t *testing.T, text io.StringWriter) {
	t.Helper()
	found, err := s.Current(t.Context(), [][]*labels.Matcher{{matchAll()}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(found, func(a, b current.Sample) int { return labels.Compare(a.Labels, b.Labels) })
	for _, c := range found {
		text.WriteString(currentText(c))
	}
}

func (s *formatStore) readExemplars(t *testing.T, text io.StringWriter) {
	t.Helper()
	q, err := s.ExemplarQuerier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := q.Select(0, series.MaxTime, []*labels.Matcher{matchAll()})
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range found {
		for _, x := range result.Exemplars {
			text.WriteString(exemplarText(result.SeriesLabels, x))
		}
	}
}

// readRollups writes the cells of the families of rollups and counts, of all tenants.
func (s *formatStore) readRollups(t *testing.T, text io.StringWriter) {
	t.Helper()
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}}
	for _, family := range []string{rollup.OneHour.Family(), rollup.FiveMinutes.Family(), series.FamilyCount} {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: family})
	}
	err := s.rows.Scan(t.Context(), req, func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			text.WriteString(cellText(string(row.Key), c))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readLabels writes what the index has of names and values, by index period.
func (s *formatStore) readLabels(t *testing.T, text io.StringWriter) {
	t.Helper()
	q, err := s.Querier(0, series.MaxTime)
	if err != nil {
		t.Fatal(err)
	}
	names, _, err := q.LabelNames(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		values, _, err := q.LabelValues(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(fmt.Sprintf("label %q %q\n", name, values))
	}
}

// The lines of the text of a directory. Floats are written as bits.

func seriesText(word string, ls labels.Labels) string { return fmt.Sprintf("%s %s\n", word, ls) }

func cellText(key string, c bucketstore.Cell) string {
	return fmt.Sprintf("cell %q %s %x %d %x\n", key, c.Family, c.Qualifier, c.Time, c.Value)
}

func sampleText(s ingest.Sample) string {
	return fmt.Sprintf("sample %d %#016x (%v)%s\n", s.T, math.Float64bits(s.V), s.V, sinceText(s.ST))
}

func sinceText(st int64) string {
	if st == 0 {
		return ""
	}
	return fmt.Sprintf(" since %d", st)
}

func histogramSampleText(s ingest.Histogram) string {
	return fmt.Sprintf("sample %d %s%s\n", s.T, histogramText(s.H, s.FH), sinceText(s.ST))
}

// histogramText leaves out what may come and go in chunks: empty buckets, and whether the
// counter was reset.
func histogramText(h *histogram.Histogram, fh *histogram.FloatHistogram) string {
	kind := "float"
	if h != nil {
		kind, fh = "integer", h.ToFloat(nil)
	}
	fh = fh.Copy().Compact(0)
	bits := func(list ...float64) (texts []string) {
		for _, v := range list {
			texts = append(texts, fmt.Sprintf("%x", math.Float64bits(v)))
		}
		return texts
	}
	return fmt.Sprintf("%s schema %d gauge %t zero, count, sum %s spans %v %v buckets %s %s bounds %s", kind,
		fh.Schema, fh.CounterResetHint == histogram.GaugeType, bits(fh.ZeroThreshold, fh.ZeroCount, fh.Count, fh.Sum),
		fh.PositiveSpans, fh.NegativeSpans, bits(fh.PositiveBuckets...), bits(fh.NegativeBuckets...), bits(fh.CustomValues...))
}

func currentText(c current.Sample) string {
	what := sampleText(ingest.Sample{T: c.T, V: c.V})
	if c.H != nil || c.FH != nil {
		what = histogramSampleText(ingest.Histogram{T: c.T, H: c.H, FH: c.FH})
	}
	return seriesText("current", c.Labels) + "newest " + what
}

func exemplarText(ls labels.Labels, x exemplar.Exemplar) string {
	return fmt.Sprintf("exemplar %s %s %d %#016x\n", ls, x.Labels, x.Ts, math.Float64bits(x.Value))
}

func metadataText(m ingest.Metadata) string {
	return fmt.Sprintf("metadata %q %s %q %q\n", m.Family, m.Type, m.Unit, m.Help)
}

// firstDifference describes where two texts begin to differ.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d is\n%s\nwant\n%s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// unpackFormat unpacks a directory into one of the test.
func unpackFormat(t *testing.T, path string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, head.Name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, head.Name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// packFormat packs the files of a directory.
func packFormat(t *testing.T, dir, path string) {
	t.Helper()
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zipped)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err := errors.Join(err, w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
