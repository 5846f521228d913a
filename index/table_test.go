package index_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// table is an INDEX table in memory that counts what is done to it.
type table struct {
	// onPut and onScan are called before each call does its work, with the
	// number of the call, from 1 on. An error is that of the call. They may block.
	onPut, onScan func(call int) error

	mu     sync.Mutex
	values map[string][]byte
	// sorted are the keys of values, in order, but for those in added.
	sorted, added []string
	// puts are the rows of each call, as lines, sorted, unless countOnly is set.
	puts      [][]string
	countOnly bool
	// putCalls, putRows, scanCalls, scanRows are how much was done.
	putCalls, putRows, scanCalls, scanRows int
	// scans has for each scan how many ranges it named.
	scans []int
	// onRows, if set, is shown the rows of each put.
	onRows func(rows []index.Row)
	// misuse is the first broken promise of a caller.
	misuse error
}

// newTable returns an empty table. The test fails if the index breaks the
// contract of its rows.
func newTable(t testing.TB) *table {
	tab := &table{values: make(map[string][]byte)}
	t.Cleanup(func() {
		if tab.misuse != nil {
			t.Error(tab.misuse)
		}
	})
	return tab
}

func (t *table) PutRows(_ context.Context, rows []index.Row) error {
	t.mu.Lock()
	t.putCalls++
	call, hook := t.putCalls, t.onPut
	t.mu.Unlock()
	if hook != nil {
		if err := hook(call); err != nil {
			return err
		}
	}
	if t.onRows != nil {
		t.onRows(rows)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(rows) == 0 && t.misuse == nil {
		t.misuse = fmt.Errorf("PutRows without rows")
	}
	var lines []string
	for i, row := range rows {
		if i > 0 && bytes.Compare(rows[i-1].Key, row.Key) >= 0 && t.misuse == nil {
			t.misuse = fmt.Errorf("PutRows with %q before %q", rows[i-1].Key, row.Key)
		}
		if _, ok := t.values[string(row.Key)]; !ok {
			t.added = append(t.added, string(row.Key))
		}
		t.values[string(row.Key)] = bytes.Clone(row.Value)
		if !t.countOnly {
			lines = append(lines, line(row))
		}
	}
	slices.Sort(lines)
	t.puts = append(t.puts, lines)
	t.putRows += len(rows)
	return nil
}

// line is a row in one line: the key, the value if there is one, and the time.
func line(row index.Row) string {
	if len(row.Value) == 0 {
		return fmt.Sprintf("%s @%d", row.Key, row.Time)
	}
	return fmt.Sprintf("%s = %q @%d", row.Key, row.Value, row.Time)
}

func (t *table) ScanRows(ctx context.Context, ranges []series.RowRange, limit int, fn func(key, value []byte) error) error {
	t.mu.Lock()
	t.scanCalls++
	call, hook := t.scanCalls, t.onScan
	t.mu.Unlock()
	if hook != nil {
		if err := hook(call); err != nil {
			return err
		}
	}
	keys, values := t.find(ranges, limit)
	var key, value []byte
	for i := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		key, value = append(key[:0], keys[i]...), append(value[:0], values[i]...)
		t.mu.Lock()
		t.scanRows++
		t.mu.Unlock()
		if err := fn(key, value); err != nil {
			return err
		}
		clear(key) // the bytes are valid only during the call
		clear(value)
	}
	return nil
}

// find returns the rows of ranges, up to limit if that is not 0.
func (t *table) find(ranges []series.RowRange, limit int) (keys []string, values [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.check(ranges)
	t.scans = append(t.scans, len(ranges))
	t.sort()
	for _, r := range ranges {
		at, _ := slices.BinarySearch(t.sorted, string(r.Start))
		for ; at < len(t.sorted) && r.Contains([]byte(t.sorted[at])); at++ {
			if limit > 0 && len(keys) == limit {
				return keys, values
			}
			keys = append(keys, t.sorted[at])
			values = append(values, t.values[t.sorted[at]])
		}
	}
	return keys, values
}

// sort puts the keys in added in their place.
func (t *table) sort() {
	if len(t.added) == 0 {
		return
	}
	slices.Sort(t.added)
	merged, rest := make([]string, 0, len(t.sorted)+len(t.added)), t.sorted
	for _, key := range t.added {
		at, _ := slices.BinarySearch(rest, key)
		merged = append(append(merged, rest[:at]...), key)
		rest = rest[at:]
	}
	t.sorted, t.added = append(merged, rest...), nil
}

// has says whether there is a row with this key.
func (t *table) has(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.values[key]
	return ok
}

// A storedRow is a row of a table.
type storedRow struct{ key, value string }

// lines returns all rows.
func (t *table) lines() (rows []storedRow) {
	keys, values := t.find([]series.RowRange{{}}, 0)
	for i, key := range keys {
		rows = append(rows, storedRow{key, string(values[i])})
	}
	return rows
}

// remove removes a row. No scan may be running.
func (t *table) remove(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sort()
	delete(t.values, key)
	if at, ok := slices.BinarySearch(t.sorted, key); ok {
		t.sorted = slices.Delete(t.sorted, at, at+1)
	}
}

// set changes the value of a row.
func (t *table) set(key, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.values[key] = []byte(value)
}

// check notes ranges that a Store would not take.
func (t *table) check(ranges []series.RowRange) {
	for i, r := range ranges {
		switch {
		case t.misuse != nil:
		case r.IsEmpty():
			t.misuse = fmt.Errorf("scan of the empty range %s", r)
		case i > 0 && (len(ranges[i-1].Limit) == 0 || bytes.Compare(ranges[i-1].Limit, r.Start) > 0):
			t.misuse = fmt.Errorf("scan of %s after %s", r, ranges[i-1])
		}
	}
}

// reset forgets what was counted, not what is stored.
func (t *table) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.puts, t.scans = nil, nil
	t.putCalls, t.putRows, t.scanCalls, t.scanRows = 0, 0, 0, 0
}

// work says what was done since reset, for comparison with want.
func (t *table) work() work {
	t.mu.Lock()
	defer t.mu.Unlock()
	return work{t.putCalls, t.putRows, t.scanCalls, t.scanRows}
}

type work struct{ putCalls, putRows, scanCalls, scanRows int }

func wantWork(t *testing.T, tab *table, what string, want work) {
	t.Helper()
	if got := tab.work(); got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// newSchema returns a schema without tenants if tenant is empty.
func newSchema(t testing.TB, resource []string, tenant string) series.Schema {
	t.Helper()
	schema, err := series.NewSchema(resource)
	if err == nil && tenant != "" {
		schema, err = schema.ForTenant(tenant)
	}
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// entry is the entry of the series with these labels, given as name and value
// in turn, in the zero schema.
func entry(t testing.TB, at int64, pairs ...string) index.Entry {
	t.Helper()
	return entryOf(t, series.Schema{}, at, labels.FromStrings(pairs...))
}

func entryOf(t testing.TB, schema series.Schema, at int64, ls labels.Labels) index.Entry {
	t.Helper()
	key, err := schema.AppendSeriesKey(nil, ls)
	if err != nil {
		t.Fatal(err)
	}
	return index.Entry{Key: key, Labels: ls, T: at}
}

func mustWrite(t testing.TB, x *index.Index, entries ...index.Entry) {
	t.Helper()
	if err := x.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

func mustSelect(t testing.TB, x *index.Index, q index.Query) *index.Result {
	t.Helper()
	result, err := x.Select(t.Context(), q)
	if err != nil {
		t.Fatalf("%v: %v", q.Matchers, err)
	}
	return result
}

// matchers parses pairs of a matcher's label and type, like "job=~", and its
// value.
func matchers(t testing.TB, pairs ...string) []*labels.Matcher {
	t.Helper()
	var ms []*labels.Matcher
	for i := 0; i < len(pairs); i += 2 {
		name, typ := pairs[i], labels.MatchEqual
		for _, m := range []labels.MatchType{labels.MatchNotRegexp, labels.MatchRegexp, labels.MatchNotEqual, labels.MatchEqual} {
			if cut, ok := bytes.CutSuffix([]byte(name), []byte(m.String())); ok {
				name, typ = string(cut), m
				break
			}
		}
		ms = append(ms, labels.MustNewMatcher(typ, name, pairs[i+1]))
	}
	return ms
}

// texts are the label sets of a result, as text.
func texts(result *index.Result) []string {
	var all []string
	for _, s := range result.Series {
		all = append(all, s.Labels.String())
	}
	return all
}
