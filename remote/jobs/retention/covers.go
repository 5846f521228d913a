package retention

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/timeline"
)

// A Coverage says whether a rule matches the series of a selector.
type Coverage int

// What a rule matches of the series of a selector: none, all, or some, as far as their labels tell.
const (
	Never Coverage = iota
	Maybe
	Always
)

// Covers says what of the series that a selector matches a rule with these matchers matches. It is sure where the selector names the values of a label, or
// has the same matcher.
func Covers(rule, selector []*labels.Matcher) Coverage {
	all := Always
	for _, m := range rule {
		switch covers(m, selector) {
		case Never:
			return Never
		case Maybe:
			all = Maybe
		}
	}
	return all
}

// covers is Covers of one matcher.
func covers(rule *labels.Matcher, selector []*labels.Matcher) Coverage {
	result := Maybe
	for _, m := range selector {
		if m.Name != rule.Name {
			continue
		}
		if m.Type == rule.Type && m.Value == rule.Value {
			return Always
		}
		if inverse, err := m.Inverse(); err == nil && inverse.Type == rule.Type && inverse.Value == rule.Value {
			return Never
		}
		values := m.SetMatches()
		if m.Type == labels.MatchEqual {
			values = []string{m.Value}
		}
		if m.Type != labels.MatchEqual && m.Type != labels.MatchRegexp || len(values) == 0 {
			continue
		}
		switch {
		case !slices.ContainsFunc(values, rule.Matches):
			return Never
		case !slices.ContainsFunc(values, func(v string) bool { return !rule.Matches(v) }):
			result = Always
		}
	}
	return result
}

// Dates returns before which time a resolution of an age goes when the clock says now, by whole days of UTC, and when the samples of today
// all go.
func Dates(now time.Time, age time.Duration) (before, today time.Time) {
	end := time.UnixMilli(midnight(now.UnixMilli())).Add(24 * time.Hour)
	return time.UnixMilli(midnight(timeline.CutAt(now, age))).UTC(), end.Add(age).UTC()
}
