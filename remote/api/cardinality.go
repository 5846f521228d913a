package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/reader"
)

const (
	// defaultTop and maxTop bound the parameter limit, as in Prometheus.
	defaultTop = 10
	maxTop     = 10_000
	// maxSeconds is after all times that can be stored, in seconds.
	maxSeconds = 1e12
)

// tsdbStatus is the answer, in the form of Prometheus, which has more to say of
// its own memory.
type tsdbStatus struct {
	HeadStats                   headStats     `json:"headStats"`
	SeriesCountByMetricName     []index.Count `json:"seriesCountByMetricName"`
	LabelValueCountByLabelName  []index.Count `json:"labelValueCountByLabelName"`
	MemoryInBytesByLabelName    []index.Count `json:"memoryInBytesByLabelName"`
	SeriesCountByLabelValuePair []index.Count `json:"seriesCountByLabelValuePair"`
	// The names of these are VictoriaMetrics'.
	SeriesCountByLabelName       []index.Count `json:"seriesCountByLabelName"`
	SeriesCountByFocusLabelValue []index.Count `json:"seriesCountByFocusLabelValue,omitzero"`

	Comparison *comparison `json:"comparison,omitempty"`
}

// A comparison says how the lists of the same names differ from those of another period.
type comparison struct {
	HeadStats                    headStats      `json:"headStats"`
	SeriesCountByMetricName      index.Changes  `json:"seriesCountByMetricName"`
	LabelValueCountByLabelName   index.Changes  `json:"labelValueCountByLabelName"`
	SeriesCountByLabelValuePair  index.Changes  `json:"seriesCountByLabelValuePair"`
	SeriesCountByLabelName       index.Changes  `json:"seriesCountByLabelName"`
	SeriesCountByFocusLabelValue *index.Changes `json:"seriesCountByFocusLabelValue,omitempty"`
}

type headStats struct {
	NumSeries     int   `json:"numSeries"`
	NumLabelPairs int   `json:"numLabelPairs"`
	ChunkCount    int   `json:"chunkCount"`
	MinTime       int64 `json:"minTime"`
	MaxTime       int64 `json:"maxTime"`
}

// serveCardinality answers /api/v1/status/tsdb: the series of an index period, which is the
// running one unless date names a time, which metrics, labels and pairs they are of. The memory
// is the bytes of the values of a label. With match[] only the series of selectors count, and
// with compare the counts are compared with those of another period.
func (a *API) serveCardinality(w http.ResponseWriter, r *http.Request) {
	parameter, q, limit, err := a.countQuery(r)
	if err != nil {
		badParameter(w, parameter, err)
		return
	}
	ctx := r.Context()
	if err := a.passes.Acquire(ctx, 1); err != nil {
		respond(w, nil, fmt.Errorf("wait for others that count: %w", err))
		return
	}
	defer a.passes.Release(ctx, 1)
	if len(q.Selectors) > 0 {
		var done func()
		ctx, done = a.memory.With(ctx)
		defer done()
	}
	c, other, err := a.cfg.Engine.Cardinality(ctx, q)
	switch {
	case errors.Is(err, reader.ErrNotKept):
		badParameter(w, "date", err)
		return
	case errors.Is(err, index.ErrSamePeriod):
		badParameter(w, "compare", err)
		return
	case err != nil:
		respond(w, nil, mark(r.Context(), err))
		return
	}
	answer := tsdbStatus{
		HeadStats:                   headStats{NumSeries: c.Series, NumLabelPairs: c.Pairs, MinTime: c.Mint, MaxTime: c.Maxt},
		SeriesCountByMetricName:     top(c.Metrics, limit),
		LabelValueCountByLabelName:  top(c.Labels, limit),
		MemoryInBytesByLabelName:    top(c.LabelBytes, limit),
		SeriesCountByLabelValuePair: top(c.SeriesByPair, limit),
		SeriesCountByLabelName:      top(c.SeriesByLabel, limit),
	}
	if q.Focus != "" {
		answer.SeriesCountByFocusLabelValue = top(c.Focus, limit)
	}
	if other != nil {
		answer.Comparison = compared(other, q.Focus, limit)
	}
	respond(w, answer, nil)
}

// countQuery reads the parameters, or returns an error and which of them it is about.
func (a *API) countQuery(r *http.Request) (parameter string, q reader.CountQuery, limit int, err error) {
	fallback := defaultTop
	for _, parameter = range []string{"topN", "limit"} { // the former is VictoriaMetrics'
		limit, err = limitParameter(r, parameter, fallback)
		if err == nil && (limit < 1 || limit > maxTop) {
			err = fmt.Errorf("it must be from 1 to %d", maxTop)
		}
		if err != nil {
			return parameter, q, 0, err
		}
		fallback = limit
	}
	q = reader.CountQuery{Top: max(limit, defaultTop), Focus: r.FormValue("focusLabel"), Before: -1}
	now := a.cfg.Now()
	if q.Time, err = dateParameter(r, "date", now, now.UnixMilli()); err != nil {
		return "date", q, 0, err
	}
	if q.Before, err = dateParameter(r, "compare", now, -1); err != nil {
		return "compare", q, 0, err
	}
	if q.Selectors, err = a.parser.ParseMetricSelectors(r.Form["match[]"]); err != nil {
		return "match[]", q, 0, err
	}
	return "", q, limit, nil
}

// dateParameter reads a time in milliseconds: a day such as 2026-01-31, of which it is the last
// millisecond in UTC, or now if that is earlier; or a time as in other requests. It may not be
// after now.
func dateParameter(r *http.Request, name string, now time.Time, fallback int64) (int64, error) {
	text := r.FormValue(name)
	if text == "" {
		return fallback, nil
	}
	var t int64
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		if t = day.UnixMilli(); t <= now.UnixMilli() {
			t = min(day.AddDate(0, 0, 1).UnixMilli()-1, now.UnixMilli())
		}
	} else if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(seconds) <= maxSeconds {
		t = int64(seconds * 1000)
	} else if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		t = at.UnixMilli()
	} else {
		return 0, fmt.Errorf("%q is neither a day, such as 2026-01-31, nor a time", text)
	}
	switch {
	case t > now.UnixMilli():
		return 0, errors.New("it is after now")
	case t < 0:
		return 0, errors.New("it is before 1970, and no such samples are stored")
	}
	return t, nil
}

// compared returns a comparison with lists of up to limit changes.
func compared(c *index.Comparison, focus string, limit int) *comparison {
	largest := func(of index.Changes) index.Changes {
		of.Largest = top(of.Largest, limit)
		return of
	}
	answer := &comparison{
		HeadStats:                   headStats{NumSeries: c.Series, NumLabelPairs: c.Pairs, MinTime: c.Mint, MaxTime: c.Maxt},
		SeriesCountByMetricName:     largest(c.Metrics),
		LabelValueCountByLabelName:  largest(c.Labels),
		SeriesCountByLabelValuePair: largest(c.SeriesByPair),
		SeriesCountByLabelName:      largest(c.SeriesByLabel),
	}
	if focus != "" {
		of := largest(c.Focus)
		answer.SeriesCountByFocusLabelValue = &of
	}
	return answer
}

func top[T any](list []T, limit int) []T {
	if list == nil {
		return []T{} // not null
	}
	return list[:min(len(list), limit)]
}
