package engine

import (
	"context"
	"errors"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/spans"
	"github.com/promtable/promtable/series/cell"
)

// Append stores what is in batch and counts what it has stored, confirmed. What
// can never be stored is added to rejected, which must not be nil; everything
// else is stored. An error means that the store did not confirm some of the
// rest: the writer may, and should, send it all again. Append may change the
// histograms in batch, but keeps no reference to it.
//
// With HA on, what comes from a replica that is not elected is not stored and
// counts as if it were: the sender must not think that it has failed.
func (e *Engine) Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	if err := e.cfg.Admit(); err != nil {
		return stored, err
	}
	if err := e.cfg.WriteLimits.Admit(batch); err != nil {
		return stored, err
	}
	defer e.cfg.Deletions.Begin()()
	kept, deduplicated, err := e.deduplicate(ctx, batch, rejected)
	if err == nil {
		stored, err = e.appendKept(ctx, kept, rejected)
	}
	return stored.Plus(deduplicated), err
}

// AppendMetadata stores metadata, of several entries of one family the last. Those
// that can never be stored go to rejected. An error means that the rest may not be
// stored; the writer may, and should, send it again.
func (e *Engine) AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) error {
	if err := e.cfg.Admit(); err != nil {
		return err
	}
	return e.metadata.Append(ctx, batch, func(err error) { rejected.Add(ingest.ReasonMetadata, 1, err) })
}

// appendKept is Append without HA.
func (e *Engine) appendKept(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	a, started := e.borrow(), e.cfg.Now()
	if err = e.accept(ctx, a, batch, rejected); err != nil {
		return stored, err
	}
	if len(a.samples)+len(a.exemplars) > 0 {
		stored, err = e.store(ctx, a, rejected)
	}
	if err == nil {
		if err = e.checkStall(ctx, started, a.bound, batch); err != nil {
			return ingest.Stored{}, err
		}
		e.giveBack(a)
	}
	return stored, err
}

// store stores what is accepted. What the store can never take is taken out of a.
func (e *Engine) store(ctx context.Context, a *accepted, rejected *ingest.Rejected) (stored ingest.Stored, err error) {
	ctx, span := spans.Start(ctx, "append")
	span.Count("samples", len(a.samples))
	defer func() { span.End(err) }()
	if err = e.writeIndex(ctx, a, rejected); err == nil {
		err = e.cfg.Appender.Append(ctx, a.samples)
		e.cfg.Written(a.samples)
	}
	stored = a.confirmed(err)
	if err = e.dropRefused(a, err, rejected); err == nil {
		stored.Exemplars, err = e.appendExemplars(ctx, a, rejected)
	}
	e.metrics.appended.WithLabelValues(resultOK).Add(float64(stored.Total()))
	e.metrics.appended.WithLabelValues(resultFailed).Add(float64(len(a.samples) + len(a.exemplars) - stored.Total()))
	if err != nil {
		return stored, err
	}
	e.current.Add(a.samples, a.handles)
	for _, c := range a.fresh {
		e.addCached(c)
	}
	return stored, nil
}

// writeIndex sees to it that what is accepted can be found. What limits of series refuse is moved from a to rejected.
func (e *Engine) writeIndex(ctx context.Context, a *accepted, rejected *ingest.Rejected) error {
	if len(a.entries) == 0 {
		return nil
	}
	err := e.index.Write(ctx, a.entries)
	if over := (*index.RefusedError)(nil); errors.As(err, &over) {
		a.dropSeries(over.Refused, rejected)
	} else if err != nil {
		return err
	}
	for i, c := range a.entryOf {
		if c != nil {
			c.indexed.add(a.entries[i].T)
		}
	}
	return nil
}

// accepted is what Append stores: samples in the order in which they came, and
// the index entries that must be there before.
type accepted struct {
	samples []bucketstore.Sample
	// handles has for each of samples that of its series in the current table, or nil.
	handles   []*current.Handle
	exemplars []acceptedExemplar
	entries   []index.Entry
	// entryOf has for each of entries its series, or nil.
	entryOf []*cachedSeries
	// fresh are those of them to be cached once all is stored.
	fresh []*cachedSeries
	// histograms is how many of samples are histograms.
	histograms int
	// bound is the times that were accepted.
	bound timeBound
	// values holds the encoded values of samples.
	values []byte
	// key is scratch space.
	key []byte
}

// borrow returns memory for a batch.
func (e *Engine) borrow() *accepted {
	if a, ok := e.accepted.Get().(*accepted); ok {
		return a
	}
	return new(accepted)
}

// Memory that is used again may have room for so many samples, and for so many
// bytes of values.
const (
	maxPooledSamples = 40_000
	maxPooledValues  = 4 << 20
)

// giveBack ends the use of a, to which nothing refers any more.
func (e *Engine) giveBack(a *accepted) {
	if cap(a.samples) > maxPooledSamples || cap(a.entries) > maxPooledSamples || cap(a.values) > maxPooledValues {
		return
	}
	clear(a.samples)
	clear(a.handles)
	clear(a.entries)
	clear(a.entryOf)
	clear(a.fresh)
	*a = accepted{
		samples: a.samples[:0], handles: a.handles[:0], entries: a.entries[:0], entryOf: a.entryOf[:0],
		fresh: a.fresh[:0], values: a.values[:0], key: a.key[:0],
	}
	e.accepted.Put(a)
}

// confirmed counts the samples that the error of an Append leaves confirmed.
func (a *accepted) confirmed(err error) (stored ingest.Stored) {
	if err == nil {
		return ingest.Stored{Samples: len(a.samples) - a.histograms, Histograms: a.histograms}
	}
	var failed *bucketstore.SamplesError
	if !errors.As(err, &failed) {
		return stored
	}
	stored = a.confirmed(nil)
	for _, i := range failed.Failed {
		if cell.IsHistogram(a.samples[i].Value) {
			stored.Histograms--
		} else {
			stored.Samples--
		}
	}
	return stored
}
