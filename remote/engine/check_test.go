package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// TestCheck: all that an engine stores is well. Cells, keys and values that are not what they
// should be are named by their rows.
func TestCheck(t *testing.T) {
	c := newClock(someTime)
	store := openEmbedded(t, c)
	cfg := engine.Config{Store: store, Now: c.now}
	cfg.Appender = bucketstore.NewDirect(store, cfg.Schema, c.now, nil)
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var batch []ingest.Series
	for n := range 1200 { // more than one page
		batch = append(batch, ingest.Series{
			Labels:  labels.FromStrings("__name__", "m", "n", fmt.Sprint(n), "empty,", "\n"),
			Samples: []ingest.Sample{{T: someTime - series.IndexPeriod, V: 1}, {T: someTime, V: 2}},
		})
	}
	batch[0].Histograms = []ingest.Histogram{{T: someTime + 1, H: &histogram.Histogram{Count: 1, ZeroCount: 1}}}
	batch[1].Exemplars = []exemplar.Exemplar{{Ts: someTime, HasTs: true, Value: 1, Labels: labels.FromStrings("trace", "a")}}
	batch = append(batch, ingest.Series{Labels: labels.FromStrings("__name__", "long", "text", strings.Repeat("long", 200)), Samples: []ingest.Sample{{T: someTime, V: 1}}})
	var rejected ingest.Rejected
	if _, err := e.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func() (result engine.CheckResult, found []string) {
		t.Helper()
		rows := make(map[bucketstore.Table]int64)
		result, err := engine.Check(t.Context(), engine.CheckConfig{
			Store:    store,
			Report:   func(f bucketstore.Finding) { found = append(found, f.String()) },
			Progress: func(table bucketstore.Table, n, _ int64) { rows[table] += n },
		})
		if err != nil {
			t.Fatal(err)
		}
		if rows[bucketstore.Metric] < 1201 || rows[bucketstore.Current] < 1201 || rows[bucketstore.Index] < 2400 {
			t.Errorf("rows %v", rows)
		}
		return result, found
	}
	if result, found := check(); len(found) > 0 || result != (engine.CheckResult{Indexed: 2401}) {
		t.Fatalf("%+v, found %q", result, found)
	}

	row := string(cfg.Schema.AppendRowKey(nil, []byte("m,empty\\,=\\n,n=7"), 30*series.Period))
	period := series.PeriodOf(someTime)
	postings := cfg.Schema.AppendPostingPrefix(nil, "__name__", "other", period)
	for _, bad := range []struct {
		table bucketstore.Table
		key   string
		family, qualifier, value,
		what string
	}{
		{bucketstore.Metric, row, "c", "some chunk", "some value", "chunk with a qualifier of 10"},
		{bucketstore.Metric, strings.Replace(row, "n=7", "n=8", 1), "r1", "12", "12345678", "qualifier"},
		{bucketstore.Metric, strings.Replace(row, "n=7", "n=9", 1), "e", "12", "12345678", "exemplar"},
		{bucketstore.Metric, "no row", "r1", "\x00\x00\x00\x00", "12345678", "has no base"},
		{bucketstore.Current, "m,n=\\x", "v", "v", "12345678", "corrupt"},
		{bucketstore.Current, "m,n=7", "v", "v", "?", "corrupt"},
		{bucketstore.Index, "x,some", "i", "i", "", "is no posting"},
		{bucketstore.Index, string(cfg.Schema.AppendNameKey(nil, "n", period)), "i", "i", "other", "belongs to row"},
		{bucketstore.Index, string(cfg.Schema.AppendValueKey(nil, "n", "7", period)), "i", "i", "other", "is no posting"},
		{bucketstore.Meta, "schema", "m", "v", "{", "its format cannot be read"},
	} {
		op := bucketstore.Op{Family: bad.family, Qualifier: []byte(bad.qualifier), Time: 1 << 42, Value: []byte(bad.value)}
		if err := store.Apply(t.Context(), bad.table, []bucketstore.Mutation{{Key: []byte(bad.key), Ops: []bucketstore.Op{op}}}); err != nil {
			t.Fatal(err)
		}
		_, found := check()
		want := fmt.Sprintf("row %q of %s: ", bad.key, bad.table)
		at := slices.IndexFunc(found, func(line string) bool { return strings.HasPrefix(line, want) && strings.Contains(line, bad.what) })
		if at < 0 {
			t.Errorf("no %s%s in %q", want, bad.what, found)
		}
	}
	before, _ := check()
	unused := bucketstore.Op{Family: "i", Qualifier: []byte("i"), Time: 1}
	if err := store.Apply(t.Context(), bucketstore.Index, []bucketstore.Mutation{{Key: append(postings, "other,n=1"...), Ops: []bucketstore.Op{unused}}}); err != nil {
		t.Fatal(err)
	}
	if result, _ := check(); result.Unused != before.Unused+1 {
		t.Errorf("a series in the index only: %+v", result)
	}
}

// TestCheckListsSome: of many missing rows of the index the first are listed and the others
// counted, and a repair writes all.
func TestCheckListsSome(t *testing.T) {
	c := newClock(someTime)
	store := openEmbedded(t, c)
	base, delta := series.Split(someTime)
	var muts []bucketstore.Mutation
	for n := range 100 {
		key := series.Schema{}.AppendRowKey(nil, []byte(fmt.Sprintf("m,n=%d", n)), base)
		muts = append(muts, bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{{
			Kind: bucketstore.SetCell, Family: series.RawFamilies[0], Qualifier: series.AppendQualifier(nil, delta), Time: someTime, Value: make([]byte, 8),
		}}})
	}
	if err := store.Apply(t.Context(), bucketstore.Metric, muts); err != nil {
		t.Fatal(err)
	}
	check := func(repair bool) (found []bucketstore.Finding) {
		t.Helper()
		_, err := engine.Check(t.Context(), engine.CheckConfig{
			Store: store, Repair: repair,
			Report:   func(f bucketstore.Finding) { found = append(found, f) },
			Progress: func(bucketstore.Table, int64, int64) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, repair := range []bool{false, true} {
		found := check(repair)
		if last := found[len(found)-1]; len(found) != 21 || !strings.Contains(last.String(), "more rows") || last.Repaired != repair {
			t.Errorf("repair %t: %d findings, the last: %+v", repair, len(found), last)
		}
	}
	if found := check(false); len(found) > 0 {
		t.Errorf("after the repair: %v", found)
	}
}

// TestCheckHorizon: samples of index periods before the horizon need no index.
func TestCheckHorizon(t *testing.T) {
	f := openFixture(t)
	f.unchecked = true
	f.append(t, one(up, someTime-series.IndexPeriod, someTime))
	end := series.PeriodOf(someTime)
	if err := f.store.Drop(t.Context(), bucketstore.Index, f.cfg.Schema.NameRange(end-series.IndexPeriod)); err != nil {
		t.Fatal(err)
	}
	for horizon, want := range map[int64]int{0: 1, end: 1, end + 1: 0} {
		found := 0
		_, err := engine.Check(t.Context(), engine.CheckConfig{
			Store: f.store, Horizon: horizon,
			Report: func(bucketstore.Finding) { found++ }, Progress: func(bucketstore.Table, int64, int64) {},
		})
		if err != nil || found != want {
			t.Errorf("horizon %d: %d findings, %v, want %d", horizon, found, err, want)
		}
	}
}
