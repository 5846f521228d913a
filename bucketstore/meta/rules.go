package meta

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A RuleList is a list of retention rules and what they have cut so far. The first rule that matches a
// series holds for it. Package retention says what that means.
type RuleList struct {
	// ID follows from the tenant and the matchers: adapters with the same rules have one list.
	ID string `json:"-"`
	// Tenant is empty in a store without tenants.
	Tenant string     `json:"tenant,omitempty"`
	Rules  []RuleCuts `json:"rules"`

	cell Cell
}

// RuleCuts are what a rule has cut so far. No time in it ever goes back. As JSON the times have the names of their resolutions; those of
// later versions stay as they were read.
type RuleCuts struct {
	// Matchers are those of the selector. Without any the rule matches every series.
	Matchers []Matcher
	// Closed is the time up to which, inclusive, no sample is taken any more, in milliseconds.
	Closed int64
	// Cuts are the times before which cells may have been deleted, and the others must not be shown.
	Cuts Horizons
	// Removed are those before which all cells are deleted.
	Removed Horizons

	// laterCuts and laterRemoved are those of resolutions that this version does not know.
	laterCuts, laterRemoved map[string]int64
}

// storedCuts is the JSON of RuleCuts.
type storedCuts struct {
	Matchers []Matcher        `json:"matchers"`
	Closed   int64            `json:"closed,omitempty"`
	Cuts     map[string]int64 `json:"cuts"`
	Removed  map[string]int64 `json:"gone"`
}

// MarshalJSON implements json.Marshaler.
func (c RuleCuts) MarshalJSON() ([]byte, error) {
	return json.Marshal(storedCuts{c.Matchers, c.Closed, c.Cuts.byName(c.laterCuts), c.Removed.byName(c.laterRemoved)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *RuleCuts) UnmarshalJSON(text []byte) error {
	var stored storedCuts
	err := json.Unmarshal(text, &stored)
	*c = RuleCuts{Matchers: stored.Matchers, Closed: stored.Closed}
	c.laterCuts, c.laterRemoved = c.Cuts.take(stored.Cuts), c.Removed.take(stored.Removed)
	return err
}

// byName returns the times that are not 0 by the names of their resolutions, and later.
func (h Horizons) byName(later map[string]int64) map[string]int64 {
	byName := make(map[string]int64)
	maps.Copy(byName, later)
	for r := range rollup.NumResolutions {
		t := h[r]
		if t != 0 {
			byName[r.String()] = t
		}
	}
	return byName
}

// take sets h to the times in byName, and returns those of other names, nil if there are none.
func (h *Horizons) take(byName map[string]int64) (later map[string]int64) {
	for r := range rollup.NumResolutions {
		name := r.String()
		h[r] = byName[name]
		delete(byName, name)
	}
	if len(byName) > 0 {
		later = byName
	}
	return later
}

// NewRuleList returns a list that has cut nothing, of rules with these matchers.
func NewRuleList(tenant string, rules [][]Matcher) RuleList {
	l := RuleList{Tenant: tenant}
	for _, matchers := range rules {
		l.Rules = append(l.Rules, RuleCuts{Matchers: append([]Matcher{}, matchers...)}) // never null
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // it holds texts and numbers only
	}
	sum := sha256.Sum256(text)
	l.ID = hex.EncodeToString(sum[:len(sum)/2])
	return l
}

// RuleLists returns the lists in META, ordered by ID.
func (s *Store) RuleLists(ctx context.Context) (all []RuleList, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = ScanCells(ctx, s.rows, series.MetaRulesRange(), func(key []byte, c Cell) error {
		l := RuleList{ID: series.ParseMetaRulesKey(key), cell: c}
		err := ParseJSON(key, c.Value, &l)
		all = append(all, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the retention rules: %w", err)
	}
	return all, nil
}

// PutRuleList writes a list in place of what was read of it; a new one was not read. It returns false if
// the row has changed since. After an error it may be written or not. On success l is as if it was read.
func (s *Store) PutRuleList(ctx context.Context, l *RuleList) (put bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	value, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	next := s.newCell(value)
	put, err = CompareAndSet(ctx, s.rows, string(series.AppendMetaRulesKey(nil, l.ID)), l.cell, next)
	if err != nil {
		return false, fmt.Errorf("store the retention rules: %w", err)
	}
	if put {
		l.cell = next
	}
	return put, nil
}

// RemoveRuleList removes a list, unless it has changed since it was read.
func (s *Store) RemoveRuleList(ctx context.Context, l *RuleList) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if _, err := CompareAndDelete(ctx, s.rows, string(series.AppendMetaRulesKey(nil, l.ID)), l.cell); err != nil {
		return fmt.Errorf("remove retention rules: %w", err)
	}
	return nil
}
