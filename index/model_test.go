package index_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

var (
	long = strings.Repeat("long,", 120) // 720 bytes after escaping

	// modelNames are label names of the model, modelValues their values.
	// __name__ and the label id, with values of its own, come on top.
	modelNames  = []string{"A", "a,b", "a=b", "job", "instance", "1299764477952", `back\slash`, "é", long + "name"}
	modelValues = []string{
		"a", "b", "ab", "abc", "foo", "Foo", "FOO", "foobar", "foobaz", "bar", "a,b", `a\b`, "a\nb", "a\x00b", "=", ",", "\\", "é",
		long, long + "a", long + "b", "x" + long,
	}
	modelPatterns = []string{
		"", ".*", ".+", "a", "a|b", "a|b|abc|nothing", "foo.*", "fo+.*", "foo.+", "(?i)foo", "(?i:foo).*", "(?i)FOO|abc", "a(b|c)?", "[ab]", "[^a]*", "[^a]+",
		"a\nb", "a.b", "(?-s)a.b", `a\nb`, "^foo$", "^foo.*", "foo|", "|foo", ".*bar", ".*o.*", "(foo|foobar)", "foo(bar|baz)?", "foobar|foobaz", "a,.*", `a\\.*`, `a\\b`,
		`a\x00b`, `\\`, ".", "..", "(?m)^foo$", "(?:)", "a{0}", "é", "e", "^$", "nothing", "nothing.*", "(a|b)(b|c)?", "(long,)+", "(long,)+[ab]",
		long, long + ".*", long + "(a|b)", long + "a|" + long + "b", "x?" + long + ".?",
	}
)

// stored is a series of the model: where it was written.
type stored struct {
	labels  labels.Labels
	periods []int64
}

// model is an index, and what brute force finds in it.
type model struct {
	rng    *rand.Rand
	schema series.Schema
	table  *table
	index  *index.Index
	series map[string]*stored
}

const (
	modelFirst   = 5 * series.IndexPeriod // so that the eighth, a new base, is inside
	modelPeriods = 8
)

func newModel(t *testing.T, tab *table, seed uint64, resource []string, tenant string) *model {
	m := &model{
		rng:    rand.New(rand.NewPCG(seed, seed)),
		schema: newSchema(t, resource, tenant),
		table:  tab,
		series: make(map[string]*stored),
	}
	m.index = index.New(index.Config{Schema: m.schema, ParallelLists: 1 + m.rng.IntN(4), AtomicPuts: m.rng.IntN(2) == 0}, m.table)
	return m
}

func (m *model) randomOf(texts []string) string { return texts[m.rng.IntN(len(texts))] }

func (m *model) randomLabels() labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	if m.rng.IntN(10) > 0 {
		b.Set(labels.MetricName, m.randomOf(modelValues[:12]))
	}
	for range m.rng.IntN(4) {
		b.Set(m.randomOf(modelNames), m.randomOf(modelValues))
	}
	if m.rng.IntN(4) > 0 {
		b.Set("id", fmt.Sprint("v", m.rng.IntN(2500)))
	}
	if ls := b.Labels(); !ls.IsEmpty() {
		return ls
	}
	return labels.FromStrings("A", "a")
}

// write writes count random series at random times, none of them so late in
// its period that it is prewritten.
func (m *model) write(t *testing.T, count int) {
	for count > 0 {
		var batch []index.Entry
		for range min(count, 1+m.rng.IntN(100)) {
			count--
			ls := m.randomLabels()
			for range 1 + m.rng.IntN(3) {
				period := modelFirst + m.rng.Int64N(modelPeriods)*series.IndexPeriod
				e := entryOf(t, m.schema, period+m.rng.Int64N(series.IndexPeriod*7/8), ls)
				batch = append(batch, e)
				m.note(e, period)
			}
		}
		if err := m.index.Write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *model) note(e index.Entry, period int64) {
	s := m.series[string(e.Key)]
	if s == nil {
		s = &stored{labels: e.Labels}
		m.series[string(e.Key)] = s
	}
	if !slices.Contains(s.periods, period) {
		s.periods = append(s.periods, period)
		slices.Sort(s.periods)
	}
}

func (m *model) randomLabel() string {
	return m.randomOf(append([]string{labels.MetricName, "id", "absent"}, modelNames...))
}

// randomMatcher is one of any type on any label, also on one that is not there.
func (m *model) randomMatcher() *labels.Matcher {
	name := m.randomOf(append([]string{labels.MetricName, labels.MetricName, "id", "id", "absent"}, modelNames...))
	typ := labels.MatchType(m.rng.IntN(4))
	switch {
	case name == "id" && m.rng.IntN(4) > 0:
		return labels.MustNewMatcher(typ, name, m.randomIDs(typ))
	case typ == labels.MatchEqual || typ == labels.MatchNotEqual:
		return labels.MustNewMatcher(typ, name, m.randomOf(append([]string{"", "nothing"}, modelValues...)))
	}
	return labels.MustNewMatcher(typ, name, m.randomOf(modelPatterns))
}

// randomIDs is a value or pattern for the label id.
func (m *model) randomIDs(typ labels.MatchType) string {
	one := fmt.Sprint("v", m.rng.IntN(2500))
	if typ == labels.MatchEqual || typ == labels.MatchNotEqual {
		return one
	}
	var set []string
	for i := range []int{2, 15, 16, 255, 256, 999, 1000, 1001}[m.rng.IntN(8)] {
		set = append(set, fmt.Sprint("v", m.rng.IntN(2500)))
		if i%7 == 6 {
			set[i] = set[i-1]
		}
	}
	all := strings.Join(set, "|")
	return m.randomOf([]string{"v.*", "v[0-9]+", "v1.*", "v.*7", "v2[0-9][05]", "v1?[0-9]", "V.*", "(?i)V1.*", "[^v]*", one, all, all, all, "(" + all + ")", all + "|", all + "|.*9"})
}

func (m *model) randomQuery() index.Query {
	var q index.Query
	for range m.rng.IntN(5) {
		q.Matchers = append(q.Matchers, m.randomMatcher())
	}
	switch m.rng.IntN(4) {
	case 0:
		q.Start, q.Limit = 0, series.MaxTime+1
	case 1:
		q.Start = modelFirst + m.rng.Int64N(modelPeriods)*series.IndexPeriod
		q.Limit = q.Start + series.IndexPeriod*m.rng.Int64N(3) + m.rng.Int64N(3) - 1
	default:
		q.Start = modelFirst + m.rng.Int64N(modelPeriods*series.IndexPeriod)
		q.Limit = q.Start + m.rng.Int64N(modelPeriods*series.IndexPeriod)
	}
	if m.rng.IntN(4) == 0 {
		q.MaxSeries = 1 + m.rng.IntN(50)
	}
	return q
}

// find is the answer by brute force: every series is matched by what upstream
// says of its labels, every period looked at.
func (m *model) find(q index.Query) []index.Series {
	var found []index.Series
	matches := bruteForce(q.Matchers)
	for key, s := range m.series {
		if !matches(s.labels) {
			continue
		}
		bases := make(map[int64]bool)
		for _, p := range s.periods {
			if p < q.Limit && p+series.IndexPeriod > q.Start && q.Start < q.Limit {
				bases[p-p%series.Period] = true
			}
		}
		if len(bases) > 0 {
			found = append(found, index.Series{Identity: &index.Identity{Key: key, Labels: s.labels}, Bases: slices.Sorted(maps.Keys(bases))})
		}
	}
	slices.SortFunc(found, func(a, b index.Series) int { return labels.Compare(a.Labels, b.Labels) })
	return found
}

// bruteForce tells what matchers mean without their optimisations. Patterns go
// to the standard library: anchored, and a dot matches a newline.
func bruteForce(ms []*labels.Matcher) func(labels.Labels) bool {
	matches := make([]func(string) bool, len(ms))
	for i, m := range ms {
		matches[i] = func(value string) bool { return value == m.Value }
		if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
			matches[i] = regexp.MustCompile("^(?s:" + m.Value + ")$").MatchString
		}
	}
	return func(ls labels.Labels) bool {
		for i, m := range ms {
			negative := m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp
			if matches[i](ls.Get(m.Name)) == negative {
				return false
			}
		}
		return true
	}
}

// check compares the answer to q with brute force, and what it says it read
// with what the table counted.
func (m *model) check(t *testing.T, q index.Query) {
	t.Helper()
	want := m.find(q)
	m.table.reset()
	got, err := m.index.Select(t.Context(), q)
	if q.MaxSeries > 0 && len(want) > q.MaxSeries {
		if !errors.Is(err, index.ErrTooManySeries) {
			t.Fatalf("%s: %v, want ErrTooManySeries: there are %d", show(q), err, len(want))
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", show(q), err)
	}
	if !slices.EqualFunc(got.Series, want, equalSeries) {
		t.Fatalf("%s:\ngot  %.2000v\nwant %.2000v", show(q), got.Series, want)
	}
	checkLists(t, m.table, q, got)
}

func equalSeries(a, b index.Series) bool {
	return a.Key == b.Key && labels.Equal(a.Labels, b.Labels) && slices.Equal(a.Bases, b.Bases)
}

// checkLists fails if the lists of a result are not those of the query, or do
// not add up to the rows that the table has counted since its reset.
func checkLists(t *testing.T, tab *table, q index.Query, result *index.Result) {
	t.Helper()
	if q.Limit <= q.Start {
		return
	}
	rows, complete := 0, 0
	for _, l := range result.Lists {
		if len(l.Ranges) != len(l.Rows) {
			t.Fatalf("%s: list %v has %d ranges with %d counts", show(q), l.Matcher, len(l.Ranges), len(l.Rows))
		}
		for _, n := range l.Rows {
			rows += n
		}
		if l.Complete {
			complete++
		}
		if l.Matcher != nil && (l.Matcher.Matches("") || !slices.Contains(q.Matchers, l.Matcher)) {
			t.Errorf("%s: there is a list of %v", show(q), l.Matcher)
		}
	}
	if work := tab.work(); rows != work.scanRows {
		t.Errorf("%s: the lists have %d rows, the table %d", show(q), rows, work.scanRows)
	}
	if complete != 1 {
		t.Errorf("%s: %d lists are complete", show(q), complete)
	}
}

// show writes a query for people.
func show(q index.Query) string {
	var ms []string
	for _, m := range q.Matchers {
		ms = append(ms, fmt.Sprintf("%.200s", m))
	}
	return fmt.Sprintf("{%s} [%d, %d) at most %d", strings.Join(ms, ", "), q.Start, q.Limit, q.MaxSeries)
}

func TestModel(t *testing.T) {
	tests := []struct {
		name     string
		resource []string
		tenants  []string
		series   int
	}{
		{"plain", nil, []string{""}, 2500},
		{"resource labels and tenants", []string{"instance", "a,b"}, []string{"a", "a,p", "p"}, 350},
		{"few", nil, []string{""}, 20},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			tab := newTable(t)
			tab.countOnly = true
			var models []*model
			for i, tenant := range test.tenants {
				m := newModel(t, tab, seed+uint64(i), test.resource, tenant)
				m.write(t, test.series)
				models = append(models, m)
			}
			for i := range 150 {
				m := models[i%len(models)]
				m.check(t, m.randomQuery())
			}
			for i := range 20 {
				m := models[i%len(models)]
				q := m.randomQuery()
				q.Matchers = nil
				m.checkTexts(t, q, m.randomLabel())
			}
		})
	}
}
