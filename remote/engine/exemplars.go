package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// acceptedExemplar is a valid exemplar of the series with this reference.
type acceptedExemplar struct {
	ref bucketstore.Ref
	x   exemplar.Exemplar
}

// checkExemplar says what is wrong with an exemplar, its time aside, if anything
// is.
func checkExemplar(x exemplar.Exemplar) error {
	if !x.HasTs || x.Ts == 0 {
		return errors.New("it has no timestamp")
	}
	if !x.Labels.IsEmpty() && !x.Labels.IsValid(model.UTF8Validation) {
		return errors.New("label names and values must be valid UTF-8, names not empty")
	}
	if name, ok := x.Labels.HasDuplicateLabelNames(); ok {
		return fmt.Errorf("label %q is there twice", name)
	}
	length := 0
	x.Labels.Range(func(l labels.Label) {
		length += utf8.RuneCountInString(l.Name) + utf8.RuneCountInString(l.Value)
	})
	if length > exemplar.ExemplarMaxLabelSetLength {
		return fmt.Errorf("its labels have %d characters, the limit is %d", length, exemplar.ExemplarMaxLabelSetLength)
	}
	return nil
}

// exemplarError says what is wrong with an exemplar. It formats itself late,
// like labelsError.
type exemplarError struct {
	ls  labels.Labels
	x   exemplar.Exemplar
	err error
}

func (e exemplarError) Error() string {
	return fmt.Sprintf("series %s: exemplar %s at %d: %v", series.Abbreviate(e.ls), series.Abbreviate(e.x.Labels), e.x.Ts, e.err)
}

// appendExemplars stores exemplars, one mutation for each row, and returns how
// many the store has confirmed.
func (e *Engine) appendExemplars(ctx context.Context, exemplars []acceptedExemplar) (stored int, err error) {
	if len(exemplars) == 0 {
		return 0, nil
	}
	var muts []bucketstore.Mutation
	at := make(map[string]int)
	for _, a := range exemplars {
		base, delta := series.Split(a.x.Ts)
		key := e.cfg.Schema.AppendRowKey(nil, a.ref.SeriesKey(), base)
		n, ok := at[string(key)]
		if !ok {
			n = len(muts)
			at[string(key)] = n
			muts = append(muts, bucketstore.Mutation{Key: key})
		}
		value := cell.AppendExemplar(nil, a.x)
		muts[n].Ops = append(muts[n].Ops, bucketstore.Op{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyExemplar,
			Qualifier: cell.AppendExemplarQualifier(nil, delta, value),
			Time:      a.x.Ts,
			Value:     value,
		})
	}
	err = e.cfg.Store.Apply(ctx, bucketstore.Metric, muts)
	var failed *bucketstore.RowsError
	switch {
	case err == nil:
		return len(exemplars), nil
	case errors.As(err, &failed):
		stored = len(exemplars)
		for i := range failed.Failed {
			stored -= len(muts[i].Ops)
		}
	}
	return stored, fmt.Errorf("append exemplars: %w", err)
}

// ExemplarQuerier implements storage.ExemplarQueryable.
func (e *Engine) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	return exemplarQuerier{ctx, e}, nil
}

type exemplarQuerier struct {
	ctx context.Context
	e   *Engine
}

// Select implements storage.ExemplarQuerier: the exemplars in [start, end], in
// milliseconds, of the series that any of the selectors matches, sorted by
// series and then by time. There may be as many as the limit on samples allows.
func (q exemplarQuerier) Select(start, end int64, selectors ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	found := make(map[string]index.Series)
	for _, matchers := range selectors {
		result, err := q.e.find(q.ctx, Query{Matchers: matchers, Mint: start, Maxt: end})
		if err != nil {
			return nil, err
		}
		for _, s := range result.Series {
			have := found[s.Key]
			s.Bases = append(slices.Clone(have.Bases), s.Bases...)
			slices.Sort(s.Bases)
			s.Bases = slices.Compact(s.Bases)
			found[s.Key] = s
		}
	}
	results, err := q.e.readExemplars(q.ctx, found, Query{Mint: start, Maxt: end})
	if results == nil {
		results = []exemplar.QueryResult{} // which is not null in JSON
	}
	slices.SortFunc(results, func(a, b exemplar.QueryResult) int { return labels.Compare(a.SeriesLabels, b.SeriesLabels) })
	return results, err
}

// readExemplars reads the exemplars of these series, by key, in the range of q.
func (e *Engine) readExemplars(ctx context.Context, found map[string]index.Series, q Query) ([]exemplar.QueryResult, error) {
	start, limit := q.span()
	var rows []series.RowRange
	for key, s := range found {
		for _, base := range s.Bases {
			rows = append(rows, series.SingleRow(e.cfg.Schema.AppendRowKey(nil, []byte(key), base)))
		}
	}
	if len(rows) == 0 || start >= limit {
		return nil, nil
	}
	slices.SortFunc(rows, func(a, b series.RowRange) int { return bytes.Compare(a.Start, b.Start) })
	read := exemplarScan{e: e, found: found, start: start, limit: limit, at: make(map[string]int)}
	family := bucketstore.FamilyRange{Family: series.FamilyExemplar}
	if asked := (part{start, limit}); asked.inOneBucket() {
		family.Start, family.Limit = asked.qualifiers()
	}
	for part := range slices.Chunk(rows, exemplarRows) {
		err := e.cfg.Store.Scan(ctx, bucketstore.ScanRequest{
			Table:    bucketstore.Metric,
			Rows:     part,
			Families: []bucketstore.FamilyRange{family},
		}, read.add)
		if err != nil && !errors.Is(err, ErrLimit) {
			err = fmt.Errorf("read exemplars: %w", err)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range read.results {
		slices.SortStableFunc(read.results[i].Exemplars, exemplar.Compare)
	}
	return read.results, nil
}

// exemplarRows is how many rows one scan for exemplars asks for: a bound on the
// bytes of its keys.
const exemplarRows = 128

// exemplarScan gathers the exemplars of rows.
type exemplarScan struct {
	e            *Engine
	found        map[string]index.Series
	start, limit int64

	results []exemplar.QueryResult
	at      map[string]int
	n       int
	key     []byte
	builder labels.ScratchBuilder
}

// add takes the exemplars of a row that lie in the range.
func (s *exemplarScan) add(row bucketstore.Row) error {
	var base int64
	var err error
	if s.key, base, err = s.e.cfg.Schema.ParseRowKey(s.key[:0], row.Key); err != nil {
		return err
	}
	found, ok := s.found[string(s.key)]
	if !ok {
		return nil
	}
	for _, c := range row.Cells {
		x, err := cell.ParseExemplar(base, c.Qualifier, c.Value, &s.builder)
		if err != nil {
			return fmt.Errorf("row %q: %w", row.Key, err)
		}
		if x.Ts < s.start || x.Ts >= s.limit {
			continue
		}
		if s.n++; s.e.cfg.Limits.MaxSamples > 0 && s.n > s.e.cfg.Limits.MaxSamples {
			return limitError("more than %d exemplars", s.e.cfg.Limits.MaxSamples)
		}
		i, ok := s.at[found.Key]
		if !ok {
			i = len(s.results)
			s.at[found.Key] = i
			s.results = append(s.results, exemplar.QueryResult{SeriesLabels: found.Labels})
		}
		s.results[i].Exemplars = append(s.results[i].Exemplars, x)
	}
	return nil
}
