package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// checkedFrom is the time of the first sample that the tests of check write.
const checkedFrom = 400 * series.IndexPeriod

const (
	checkedSeries  = 150
	checkedSamples = 50
)

// openParts opens the store, the buffer and the engine of an adapter.
func openParts(t *testing.T, o *options) (*engine.Engine, *buffer.Buffer) {
	t.Helper()
	schema, err := newSchema(o)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := openStore(t.Context(), o, log.NewNopLogger(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	terms, err := newTerms(t.Context(), o, schema, rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := bindLog(t.Context(), o, terms, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := bufferConfig(o)
	cfg.Store, cfg.Schema = rows, schema
	b, err := buffer.Open(t.Context(), dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &adapter{o: o, schema: schema, logger: log.NewNopLogger(), reg: prometheus.NewRegistry(), meta: terms.Store}
	if err := errors.Join(a.openDays(t.Context(), rows), a.openRetention(t.Context(), rows)); err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(a, b, b, a.schema)
	if err != nil {
		t.Fatal(err)
	}
	return e, b
}

func closeParts(t *testing.T, e *engine.Engine, b *buffer.Buffer) {
	t.Helper()
	if err := errors.Join(e.Close(context.Background()), b.Close()); err != nil {
		t.Error(err)
	}
}

// writeChecked writes samples of all series, in requests of one sample a series.
func writeChecked(t *testing.T, e *engine.Engine, from, limit int) {
	t.Helper()
	for i := from; i < limit; i++ {
		var batch []ingest.Series
		for n := range checkedSeries {
			batch = append(batch, ingest.Series{
				Labels:  labels.FromStrings("__name__", "requests_total", "instance", fmt.Sprint(n), "job", "node"),
				Samples: []ingest.Sample{{T: checkedTime(i), V: float64(i*n) * 1.1}},
			})
		}
		var rejected ingest.Rejected
		if _, err := e.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
	}
}

// checkedTime is the time of the i-th sample of each series. They lie in three index periods.
func checkedTime(i int) int64 { return checkedFrom + int64(i)*series.IndexPeriod/20 }

// readChecked returns the samples of each series, by time.
func readChecked(t *testing.T, o *options) map[string]map[int64]float64 {
	t.Helper()
	e, b := openParts(t, o)
	defer closeParts(t, e, b)
	querier, err := e.Querier(checkedFrom, checkedTime(checkedSamples))
	if err != nil {
		t.Fatal(err)
	}
	defer querier.Close()
	found := make(map[string]map[int64]float64)
	set := querier.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "requests_total"))
	for set.Next() {
		samples := make(map[int64]float64)
		it := set.At().Iterator(nil)
		for it.Next() == chunkenc.ValFloat {
			at, v := it.At()
			samples[at] = v
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		found[set.At().Labels().Get("instance")] = samples
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return found
}

// checkSamples checks that all samples are there but those that may be lost, and returns how
// many are.
func checkSamples(t *testing.T, o *options, mayBeLost func(i int) bool) (lost int) {
	t.Helper()
	found := readChecked(t, o)
	for n := range checkedSeries {
		for i := range checkedSamples {
			v, ok := found[fmt.Sprint(n)][checkedTime(i)]
			if !ok {
				lost++
			}
			if ok && v != float64(i*n)*1.1 || !ok && !mayBeLost(i) {
				t.Errorf("sample %d of series %d is %g, there: %t", i, n, v, ok)
			}
		}
	}
	return lost
}

// killedAdapter returns the flags for a copy of the directory of an adapter that runs: what
// its death would leave. Most samples are in tables, the last 10 requests in the log.
func killedAdapter(t *testing.T) (args []string, dir string) {
	t.Helper()
	live := filepath.Join(t.TempDir(), "data")
	o := parse(t, "--storage.path="+live, "--buffer.fsync=always")
	e, b := openParts(t, o)
	writeChecked(t, e, 0, checkedSamples-10)
	closeParts(t, e, b)
	e, b = openParts(t, o)
	writeChecked(t, e, checkedSamples-10, checkedSamples)
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
		t.Fatal(err)
	}
	if output, err := runChecked(t, "--storage.path="+live); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("held by another process, pid %d", os.Getpid())) {
		t.Errorf("while the adapter runs: %v\n%s", err, output)
	}
	closeParts(t, e, b)
	return []string{"--storage.path=" + dir}, dir
}

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	o, err := parseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// runChecked runs check with these flags.
func runChecked(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	var out bytes.Buffer
	o := parse(t, append([]string{commandCheck}, args...)...)
	o.out = &out
	err = checkStored(t.Context(), o, log.NewNopLogger())
	return out.String(), err
}

// filesBelow returns the content of all files, by path.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			files[path] = "directory"
			return err
		}
		content, err := os.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// flipIn flips a bit of a file.
func flipIn(t *testing.T, path string, at int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		content[at] ^= 4
		err = os.WriteFile(path, content, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// one returns the only file that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return paths[0]
}

// removeIndexRows removes rows of the index.
func removeIndexRows(t *testing.T, o *options, keys ...string) {
	t.Helper()
	writeRow(t, o, bucketstore.Index, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: series.FamilyIndex}, keys...)
}

// writeRow does the same to some rows of a table.
func writeRow(t *testing.T, o *options, table bucketstore.Table, op bucketstore.Op, keys ...string) {
	t.Helper()
	rows, err := openStore(t.Context(), o, log.NewNopLogger(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var muts []bucketstore.Mutation
	for _, key := range keys {
		muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{op}})
	}
	if err := errors.Join(rows.Apply(t.Context(), table, muts), rows.Close()); err != nil {
		t.Fatal(err)
	}
}

func indexRows(period int64) []string {
	at := string(series.AppendTime(nil, period))
	return []string{
		"n," + at + ",job",
		"p,__name__=requests_total," + at + ",requests_total,instance=3,job=node",
		"p,instance=4," + at + ",requests_total,instance=4,job=node",
		"v,instance," + at + ",5",
	}
}

// TestCheck: after kill -9 all is well, and the check changes no file. What is damaged is
// named, with what repairs it. After the repair, and its confirmation by flag, the adapter
// starts and has all samples but the damaged ones.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, o *options, dir string)
		// repairs are needed, in this order; found are parts of the output of the check.
		repairs []string
		found   []string
		// isDamaged says that nothing repairs it.
		isDamaged bool
		// mayBeLost are samples; some are lost if it is set.
		mayBeLost func(i int) bool
	}{
		{name: "kill -9", damage: func(*testing.T, *options, string) {}},
		{name: "a day that was written to late", damage: func(t *testing.T, o *options, _ string) {
			writeRow(t, o, bucketstore.Meta, bucketstore.Op{Family: series.FamilyMeta, Qualifier: []byte(series.QualifierMeta), Time: 1, Value: []byte("7Q4ZK2XB")},
				string(series.AppendMetaLateKey(nil, checkedFrom)))
		}},
		{name: "missing rows of the index", damage: func(t *testing.T, o *options, _ string) {
			removeIndexRows(t, o, indexRows(checkedFrom+series.IndexPeriod)...)
		},
			repairs: []string{repairIndex},
			found:   []string{fmt.Sprintf("row %q of INDEX: ", indexRows(checkedFrom + series.IndexPeriod)[1])}},
		{name: "a damaged log", damage: func(t *testing.T, _ *options, dir string) {
			flipIn(t, one(t, filepath.Join(dir, "buffer", "*.log")), 100)
		},
			repairs:   []string{repairLog},
			found:     []string{"at byte 76 of ", ".log.damaged; the samples in them are lost"},
			mayBeLost: func(i int) bool { return i >= checkedSamples-10 }},
		{name: "a damaged table of META", damage: damageTable("META, row"),
			isDamaged: true,
			found:     []string{"the rows and the index are not checked"}},
		{name: "a damaged copy of the schema", damage: func(t *testing.T, _ *options, dir string) {
			flipIn(t, filepath.Join(dir, "SCHEMA"), 50)
		},
			repairs: []string{repairIndex},
			found:   []string{"SCHEMA is damaged"}},
		{name: "a missing table", damage: func(t *testing.T, _ *options, dir string) {
			if err := os.Remove(one(t, filepath.Join(dir, "*.sst"))); err != nil {
				t.Fatal(err)
			}
		},
			isDamaged: true,
			found:     []string{".sst: ", "the file is missing"}},
		{name: "a damaged table of METRIC", damage: damageTable("be read: METRIC of "),
			isDamaged: true,
			found:     []string{"has another checksum"}},
		{name: "a damaged table of INDEX", damage: damageTable("be read: INDEX of "),
			isDamaged: true,
			found:     []string{"the rows and the index are not checked"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args, dir := killedAdapter(t)
			o := parse(t, args...)
			tt.damage(t, o, dir)
			before := filesBelow(t, dir)
			said, err := runChecked(t, args...)
			if (err != nil) != (tt.isDamaged || len(tt.repairs) > 0) || err != nil && !errors.Is(err, errWrong) {
				t.Fatalf("the check ends with %v\n%s", err, said)
			}
			for _, want := range tt.found {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in\n%s", want, said)
				}
			}
			if after := filesBelow(t, dir); !maps.Equal(before, after) {
				t.Error("the check has changed files")
			}
			if tt.isDamaged {
				if !strings.Contains(said, "nothing repairs it: restore the snapshot") {
					t.Errorf("what to do is not in\n%s", said)
				}
				return
			}
			output, repairs := said, args
			for _, kind := range tt.repairs {
				if !strings.Contains(output, "--repair="+kind+" would ") {
					t.Errorf("--repair=%s is not in\n%s", kind, output)
				}
				repairs = append(repairs[:len(repairs):len(repairs)], "--repair="+kind)
				if output, err = runChecked(t, repairs...); !strings.Contains(output, "repaired: ") {
					t.Errorf("after --repair=%s: %v\n%s", kind, err, output)
				}
			}
			if output, err := runChecked(t, args...); err != nil || !strings.Contains(output, "all is well") {
				t.Errorf("after all repairs: %v\n%s", err, output)
			}
			lost := checkSamples(t, o, func(i int) bool { return tt.mayBeLost != nil && tt.mayBeLost(i) })
			if (lost > 0) != (tt.mayBeLost != nil) {
				t.Errorf("%d samples are lost", lost)
			}
		})
	}
}

// damageTable returns what flips a bit in a table, so that a check says this.
func damageTable(want string) func(t *testing.T, o *options, dir string) {
	return func(t *testing.T, o *options, dir string) {
		t.Helper()
		path := one(t, filepath.Join(dir, "*.sst"))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		var positions []int // from both ends: METRIC is at the beginning, INDEX and META are at the end
		for at := 100; at < int(info.Size())/2; at += 2000 {
			positions = append(positions, at, int(info.Size())-at)
		}
		for _, at := range positions {
			flipIn(t, path, at)
			if output, _ := runChecked(t, "--storage.path="+dir); strings.Contains(output, want) && (strings.Contains(want, "META") || !strings.Contains(output, "META")) {
				return
			}
			flipIn(t, path, at)
		}
		t.Fatalf("no damage gives %q", want)
	}
}

// TestCheckOnBigtable: the index is checked against the rows there, too.
func TestCheckOnBigtable(t *testing.T) {
	t.Setenv("BIGTABLE_EMULATOR_HOST", bigtabletest.Serve(t))
	args := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--buffer.enabled", "--buffer.path=" + t.TempDir()}
	o := parse(t, args...)
	e, b := openParts(t, o)
	writeChecked(t, e, 0, 30)
	if output, err := runChecked(t, args...); err == nil || !strings.Contains(err.Error(), "held by another process") {
		t.Errorf("while the adapter runs: %v\n%s", err, output)
	}
	closeParts(t, e, b)
	removeIndexRows(t, o, indexRows(checkedFrom)...)
	if output, err := runChecked(t, args...); !errors.Is(err, errWrong) || strings.Count(output, "of INDEX: ") != 4 {
		t.Errorf("%v\n%s", err, output)
	}
	if output, err := runChecked(t, append(args, "--repair=index")...); err != nil || strings.Count(output, "repaired: ") != 4 {
		t.Errorf("repair: %v\n%s", err, output)
	}
	if output, err := runChecked(t, args...); err != nil {
		t.Errorf("after the repair: %v\n%s", err, output)
	}
}

// TestCheckFlags: a repair is confirmed by its kind.
func TestCheckFlags(t *testing.T) {
	for args, want := range map[string]string{"--repair": "--repair needs a value", "--repair=all": "enum value must be one of log,index"} {
		if _, err := parseFlags([]string{commandCheck, args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", args, err, want)
		}
	}
	if o := parse(t, commandCheck, "--repair=log", "--repair=index"); fmt.Sprint(o.repairs) != "[log index]" {
		t.Errorf("repairs %q", o.repairs)
	}
	missing := filepath.Join(t.TempDir(), "none")
	if output, err := runChecked(t, "--storage.path="+missing); err == nil || !strings.Contains(err.Error(), "no store in data directory") {
		t.Errorf("no store: %v\n%s", err, output)
	}
	prometheus := t.TempDir()
	if err := os.Mkdir(filepath.Join(prometheus, "wal"), 0o750); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{prometheus: "is one of Prometheus", filepath.Join(missing, "data"): "the directory above it does not exist"} {
		if output, err := runChecked(t, "--storage.path="+path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s\n%s", path, err, want, output)
		}
	}
	if _, err := os.Stat(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the check has made a directory: %v", err)
	}
}

// TestCheckManifest: a damaged manifest is named as what it is, and nothing repairs it.
func TestCheckManifest(t *testing.T) {
	args, dir := killedAdapter(t)
	manifests, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	manifest := manifests[len(manifests)-1] // the one before is kept, too
	flipIn(t, manifest, 20)
	output, err := runChecked(t, append(args, "--repair=index")...)
	if !errors.Is(err, errWrong) || !strings.Contains(output, manifest+" is damaged at byte 0") || !strings.Contains(output, "the store is damaged") ||
		!strings.Contains(output, "restore the snapshot") {
		t.Errorf("%v\n%s", err, output)
	}
}
