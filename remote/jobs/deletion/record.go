package deletion

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// A record is a deletion that this process knows. It does not change.
type record struct {
	meta.Deletion
	matchers []*labels.Matcher
	schema   series.Schema
	// keys has the keys of all series that match.
	keys series.RowRange
	// foreign says that it is of another tenant than that of the schema: it covers nothing here.
	foreign bool
}

// newRecord returns a record for a schema, which may be of all tenants.
func newRecord(d meta.Deletion, schema series.Schema) (_ *record, err error) {
	if schema.Tenancy() && schema.Tenant() == "" {
		if schema, err = schema.ForTenant(d.Tenant); err != nil {
			return nil, fmt.Errorf("%w: deletion %s: %v", series.ErrCorrupt, d.ID, err)
		}
	}
	r := &record{Deletion: d, schema: schema, foreign: d.Tenant != schema.Tenant()}
	name := ""
	for _, m := range d.Matchers {
		kind := slices.Index(matchTypes[:], m.Type)
		if kind < 0 {
			return nil, fmt.Errorf("%w: deletion %s has a matcher %q", series.ErrCorrupt, d.ID, m.Type)
		}
		matcher, err := labels.NewMatcher(labels.MatchType(kind), m.Name, m.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: deletion %s: %v", series.ErrCorrupt, d.ID, err)
		}
		r.matchers = append(r.matchers, matcher)
		if m.Name == labels.MetricName && matcher.Type == labels.MatchEqual {
			name = m.Value
		}
	}
	r.keys = schema.SeriesRange(name)
	return r, nil
}

// matchTypes are the stored names of the kinds of matchers, by labels.MatchType.
var matchTypes = [...]string{
	labels.MatchEqual: "=", labels.MatchNotEqual: "!=", labels.MatchRegexp: "=~", labels.MatchNotRegexp: "!~",
}

// storedMatchers returns the form of matchers that is stored.
func storedMatchers(ms []*labels.Matcher) (stored []meta.Matcher, err error) {
	for _, m := range ms {
		if !utf8.ValidString(m.Name) || !utf8.ValidString(m.Value) {
			return nil, fmt.Errorf("matcher %s is no valid UTF-8", m)
		}
		stored = append(stored, meta.Matcher{Name: m.Name, Type: matchTypes[m.Type], Value: m.Value})
	}
	return stored, nil
}

// hasPassed says whether a log has nothing from before the record any more.
func (r *record) hasPassed(log string) bool {
	state := r.Logs[log]
	return state.Passed && state.Stamp >= r.Stamp
}

// overlaps says whether the range has a time in [start, limit).
func (r *record) overlaps(start, limit int64) bool { return r.Start < limit && start < r.Limit }

func (r *record) has(t int64) bool { return t >= r.Start && t < r.Limit }

// covers says whether samples of a series in [start, limit) may be deleted.
func (r *record) covers(key []byte, start, limit int64) bool {
	return len(recordsOf([]*record{r}, key, start, limit)) > 0
}

// lateUntil returns the time, in milliseconds, before which samples go to FamilyLate because
// of the record.
func (r *record) lateUntil() int64 {
	if r.Done == 0 {
		return r.Limit
	}
	return min(r.Limit, afterWindows(r.Done))
}

// afterWindows returns the end of the windows that may have cells of raw families when the
// clock of a writer says now, or a few minutes more or less.
func afterWindows(now int64) int64 { return series.WindowOf(now) + 3*series.Window }

// isFinished says whether nothing needs the record when the clock says now.
func (r *record) isFinished(now int64) bool {
	return r.Done > 0 && r.Stamp < now && r.lateUntil() <= series.WindowOf(now)-2*series.Window
}

// recordsOf returns those of records, which are of one schema, that are about the series with
// this key and have a time in [start, limit).
func recordsOf(records []*record, key []byte, start, limit int64) (found []*record) {
	var b labels.ScratchBuilder
	var ls labels.Labels
	for _, r := range records {
		if r.foreign || !r.overlaps(start, limit) || !r.keys.Contains(key) {
			continue
		}
		if ls.IsEmpty() {
			var err error
			if ls, err = r.schema.ParseSeriesKey(key, &b); err != nil {
				return nil
			}
		}
		if !slices.ContainsFunc(r.matchers, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) }) {
			found = append(found, r)
		}
	}
	return found
}
