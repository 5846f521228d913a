package current

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// An Inventory says what Table.Inventory has met.
type Inventory struct {
	// Rows is how many rows of CURRENT were read.
	Rows int
	// Truncated says that there is more.
	Truncated bool
}

// An InventoryQuery says which current samples are wanted.
type InventoryQuery struct {
	// Selectors are those of which one matches, or none for all series.
	Selectors [][]*labels.Matcher
	// Mint is the earliest time, in milliseconds. Shown leaves out others.
	Mint  int64
	Shown func(Sample) bool
	// Limit is how many there are at most.
	Limit int
}

// Inventory calls fn with the current samples of a query, in the order of
// row keys; staleness markers are left out. It
// reads CURRENT in one pass and nothing else: no index and no samples. A single
// selector with a metric name, or several with the same, read only the rows of
// that name. An error from fn ends the pass unchanged.
func (t *Table) Inventory(ctx context.Context, q InventoryQuery, fn func(Sample) error) (Inventory, error) {
	rows := t.schema.SeriesRange(commonName(q.Selectors))
	p := inventoryPass{schema: t.schema, selectors: q.Selectors, mint: q.Mint, shown: q.Shown, left: q.Limit, fn: fn}
	p.pending = t.inRange(rows)
	err := t.store.Scan(ctx, bucketstore.ScanRequest{
		Table:    bucketstore.Current,
		Rows:     []series.RowRange{rows},
		Families: []bucketstore.FamilyRange{{Family: series.FamilyCurrent}},
	}, p.addRow)
	if err == nil {
		err = p.addPendingBefore(nil)
	}
	if errors.Is(err, errEnough) {
		p.found.Truncated, err = true, nil
	}
	return p.found, err
}

// commonName returns the metric name that every selector wants, or nothing.
func commonName(selectors [][]*labels.Matcher) (name string) {
	for i, matchers := range selectors {
		at := slices.IndexFunc(matchers, func(m *labels.Matcher) bool {
			return m.Name == labels.MetricName && m.Type == labels.MatchEqual
		})
		if at < 0 || (i > 0 && matchers[at].Value != name) {
			return ""
		}
		name = matchers[at].Value
	}
	return name
}

// errEnough ends a scan that has found as many samples as were asked for.
var errEnough = errors.New("enough")

// An inventoryPass merges the rows of CURRENT with the samples that are not
// there yet.
type inventoryPass struct {
	schema    series.Schema
	selectors [][]*labels.Matcher
	scratch   labels.ScratchBuilder
	// pending are sorted by key; those before the last row are gone.
	pending []pendingSample
	mint    int64
	shown   func(Sample) bool
	left    int
	fn      func(Sample) error
	found   Inventory
}

// addRow takes a row of CURRENT.
func (p *inventoryPass) addRow(row bucketstore.Row) error {
	p.found.Rows++
	if err := p.addPendingBefore(row.Key); err != nil {
		return err
	}
	s := sample{T: row.Cells[0].Time, Value: row.Cells[0].Value}
	if len(p.pending) > 0 && p.pending[0].key == string(row.Key) {
		if p.pending[0].T >= s.T {
			s = p.pending[0].sample
		}
		p.pending = p.pending[1:]
	}
	return p.deliver(row.Key, s)
}

// addPendingBefore takes the pending samples with keys before limit, or all that
// are left if limit is nil.
func (p *inventoryPass) addPendingBefore(limit []byte) error {
	for len(p.pending) > 0 && (limit == nil || p.pending[0].key < string(limit)) {
		next := p.pending[0]
		p.pending = p.pending[1:]
		if err := p.deliver([]byte(next.key), next.sample); err != nil {
			return err
		}
	}
	return nil
}

// deliver calls fn with the current sample of a series, if it matches.
func (p *inventoryPass) deliver(key []byte, s sample) error {
	ls, err := p.schema.ParseSeriesKey(key, &p.scratch)
	if err != nil {
		return fmt.Errorf("row %q of CURRENT: %w", key, err)
	}
	if s.T < p.mint || !p.matches(ls) {
		return nil
	}
	current, ok, err := decodeSample(ls, s)
	switch {
	case err != nil:
		return fmt.Errorf("row %q of CURRENT: %w", key, err)
	case !ok || !p.shown(current):
		return nil
	case p.left == 0:
		return errEnough
	}
	p.left--
	return p.fn(current)
}

// matches says whether a selector, if there are any, matches a series.
func (p *inventoryPass) matches(ls labels.Labels) bool {
	return len(p.selectors) == 0 || slices.ContainsFunc(p.selectors, func(ms []*labels.Matcher) bool { return labels.Selector(ms).Matches(ls) })
}

// pendingSample is a sample that is not in CURRENT yet, and its series.
type pendingSample struct {
	key string
	sample
}

// inRange returns what is pending of the series in a range, sorted by key.
func (t *Table) inRange(rows series.RowRange) []pendingSample {
	found := slices.DeleteFunc(t.all(), func(s pendingSample) bool { return !rows.Contains([]byte(s.key)) })
	slices.SortFunc(found, func(a, b pendingSample) int { return strings.Compare(a.key, b.key) })
	return found
}
