package engine

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// dropRefused moves the samples that the store can never take, by the error of an Append, from
// a to rejected. It returns nil if no other samples have failed.
func (e *Engine) dropRefused(a *accepted, err error, rejected *ingest.Rejected) error {
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) || len(failed.Refused) == 0 {
		return err
	}
	kept := 0
	for i, s := range a.samples {
		if rowErr := failed.Refused[i]; rowErr != nil {
			rejected.Add(ingest.ReasonRefused, 1, refusedError{e.cfg.Schema, s.Ref, s.T, rowErr})
			continue
		}
		a.samples[kept], a.handles[kept] = s, a.handles[i]
		kept++
	}
	clear(a.samples[kept:])
	clear(a.handles[kept:])
	a.samples, a.handles = a.samples[:kept], a.handles[:kept]
	if len(failed.Refused) == len(failed.Failed) {
		return nil
	}
	return err
}

// refusedError says why the store refuses the row of a sample or an exemplar. Like
// labelsError, it makes its text only when Error is called.
type refusedError struct {
	schema series.Schema
	ref    bucketstore.Ref
	t      int64
	err    error
}

func (e refusedError) Error() string {
	var b labels.ScratchBuilder
	ls, err := e.schema.ParseSeriesKey(e.ref.SeriesKey(), &b)
	if err != nil {
		return fmt.Sprintf("series key %q: %v", e.ref.SeriesKey(), err)
	}
	return fmt.Sprintf("series %s: the row of timestamp %d: %v", series.Abbreviate(ls), e.t, e.err)
}
