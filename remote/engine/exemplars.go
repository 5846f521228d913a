package engine

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// acceptedExemplar is a valid exemplar, and the reference of its series.
type acceptedExemplar struct {
	ref bucketstore.Ref
	x   exemplar.Exemplar
}

// checkExemplar returns what is wrong with an exemplar, or nil. It does not check
// whether the time is in bounds.
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

// exemplarError says what is wrong with an exemplar. Like labelsError, it makes its
// text only when Error is called.
type exemplarError struct {
	ls  labels.Labels
	x   exemplar.Exemplar
	err error
}

func (e exemplarError) Error() string {
	return fmt.Sprintf("series %s: exemplar %s at %d: %v", series.Abbreviate(e.ls), series.Abbreviate(e.x.Labels), e.x.Ts, e.err)
}

// appendExemplars stores the exemplars of a, one mutation for each row, and returns how many
// the store has confirmed. Those that it can never take are moved to rejected.
func (e *Engine) appendExemplars(ctx context.Context, a *accepted, rejected *ingest.Rejected) (stored int, err error) {
	if len(a.exemplars) == 0 {
		return 0, nil
	}
	var muts []bucketstore.Mutation
	at := make(map[string]int)
	rowOf := make([]int, len(a.exemplars))
	for i, a := range a.exemplars {
		base, delta := series.Split(a.x.Ts)
		key := e.cfg.Schema.AppendRowKey(nil, a.ref.SeriesKey(), base)
		n, ok := at[string(key)]
		if !ok {
			n = len(muts)
			at[string(key)] = n
			muts = append(muts, bucketstore.Mutation{Key: key})
		}
		rowOf[i] = n
		value := cell.AppendExemplar(nil, a.x)
		muts[n].Ops = append(muts[n].Ops, bucketstore.Op{
			Kind:      bucketstore.SetCell,
			Family:    series.FamilyExemplar,
			Qualifier: cell.AppendExemplarQualifier(nil, delta, value),
			Time:      a.x.Ts,
			Value:     value,
		})
	}
	err = e.rows.Apply(ctx, bucketstore.Metric, muts)
	var failed *bucketstore.RowsError
	switch {
	case err == nil:
		return len(a.exemplars), nil
	case !errors.As(err, &failed):
		return 0, fmt.Errorf("append exemplars: %w", err)
	}
	kept := a.exemplars[:0]
	for i, x := range a.exemplars {
		rowErr := failed.Failed[rowOf[i]]
		if errors.Is(rowErr, bucketstore.ErrRefused) {
			rejected.Add(ingest.ReasonRefused, 1, refusedError{e.cfg.Schema, x.ref, x.x.Ts, rowErr})
			continue
		}
		if kept = append(kept, x); rowErr == nil {
			stored++
		}
	}
	if a.exemplars = kept; stored == len(kept) {
		return stored, nil
	}
	return stored, fmt.Errorf("append exemplars: %w", err)
}
