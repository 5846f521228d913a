package engine

import (
	"fmt"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// maxHistogramBytes bounds the stored form of a histogram: about 100,000 buckets. A
// client makes 160 by default. Every backend takes a cell of this size.
const maxHistogramBytes = 1 << 20

// histogram returns h as the value of a cell, or an error if h is invalid. It reduces a
// reserved schema to the finest one that is defined, as Prometheus does.
func (a *accepted) histogram(h *ingest.Histogram) (value []byte, err error) {
	switch {
	case (h.H == nil) == (h.FH == nil):
		return nil, fmt.Errorf("it must have either integer or float counts")
	case h.H != nil:
		if finer(h.H.Schema) {
			err = h.H.ReduceResolution(histogram.ExponentialSchemaMax)
		}
		if err == nil {
			err = h.H.Validate()
		}
	default:
		if finer(h.FH.Schema) {
			err = h.FH.ReduceResolution(histogram.ExponentialSchemaMax)
		}
		if err == nil {
			err = h.FH.Validate()
		}
	}
	if err != nil {
		return nil, err
	}
	value = a.encode(cell.Value{Start: h.ST, Histogram: h.H, FloatHistogram: h.FH})
	if len(value) > maxHistogramBytes {
		return nil, fmt.Errorf("it takes %d bytes, the limit is %d", len(value), maxHistogramBytes)
	}
	return value, nil
}

// finer says whether schema is reserved for finer buckets than any defined schema.
func finer(schema int32) bool {
	return histogram.IsExponentialSchemaReserved(schema) && schema > histogram.ExponentialSchemaMax
}

// histogramError says what is wrong with a histogram. Like labelsError, it makes its
// text only when Error is called.
type histogramError struct {
	ls  labels.Labels
	t   int64
	err error
}

func (e histogramError) Error() string {
	return fmt.Sprintf("series %s: histogram at %d: %v", series.Abbreviate(e.ls), e.t, e.err)
}
