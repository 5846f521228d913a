package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
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

// dropSeries moves series that limits refuse, in the periods for which they do, to rejected.
func (a *accepted) dropSeries(refused []index.Refused, rejected *ingest.Rejected) {
	type id struct {
		key    string
		period int64
	}
	errs, keys := make(map[id]error, len(refused)), make(map[string]bool, len(refused))
	for _, r := range refused {
		key := string(r.Key)
		errs[id{key, r.Period}], keys[key] = r.Err, true
	}
	drops := func(ref bucketstore.Ref, t int64) bool {
		err := errs[id{string(ref.SeriesKey()), series.PeriodOf(t)}]
		if err != nil {
			rejected.Add(ingest.ReasonLimit, 1, err)
		}
		return err != nil
	}
	samples, handles := a.samples, a.handles
	a.samples, a.handles = samples[:0], handles[:0]
	for i, s := range samples {
		if !drops(s.Ref, s.T) {
			a.samples, a.handles = append(a.samples, s), append(a.handles, handles[i])
		} else if cell.IsHistogram(s.Value) {
			a.histograms--
		}
	}
	clear(samples[len(a.samples):])
	clear(handles[len(a.handles):])
	a.exemplars = slices.DeleteFunc(a.exemplars, func(x acceptedExemplar) bool { return drops(x.ref, x.x.Ts) })
	// A series that is refused is not cached, nor known to be in the index.
	a.fresh = slices.DeleteFunc(a.fresh, func(c *cachedSeries) bool { return keys[string(c.ref.SeriesKey())] })
	for i := range a.entries {
		if errs[id{string(a.entries[i].Key), series.PeriodOf(a.entries[i].T)}] != nil {
			a.entryOf[i] = nil
		}
	}
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
