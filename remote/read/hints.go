package read

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// Parameters of the URL.
const (
	paramResolution = "max_source_resolution"
	paramLookback   = "lookback_delta"
)

// defaultLookback is that of Prometheus.
const defaultLookback = 5 * time.Minute

// maxWindows bounds the windows of a query that are read from rollups: ten years of 5 minutes.
const maxWindows = 1 << 20

// reductions are the functions whose value follows from fewer samples than there are, and what it takes.
//
// Others are left out because they add up samples, count them, or look at times of samples that rollups do not keep.
var reductions = map[string]reduction{
	"last_over_time": {reduce: reader.KeepLast}, "ts_of_last_over_time": {reduce: reader.KeepLast},
	"present_over_time": {reduce: reader.KeepLast}, "absent_over_time": {reduce: reader.KeepLast},
	"first_over_time": {reduce: reader.KeepFirst}, "ts_of_first_over_time": {reduce: reader.KeepFirst},
	"min_over_time": {reduce: reader.KeepLeast}, "max_over_time": {reduce: reader.KeepGreatest},
	"resets": {reader.KeepResets, rollup.Resets, 2},
	"rate":   {reader.KeepRate, rollup.Resets, 2}, "increase": {reader.KeepRate, rollup.Resets, 2}, "delta": {reader.KeepRate, 0, 2},
}

// instant is the reduction of a selector without a range, whatever is computed of its values.
var instant = reduction{reader.KeepLast, rollup.Markers, 1}

// A reduction is what a function needs.
type reduction struct {
	reduce reader.Reduction
	want   rollup.Want
	// lookbacks is by how many lookbacks windows may be longer than hints say: anchored and smoothed selectors are, and hints do not tell of these.
	lookbacks int64
}

// A hinted is a request that may be answered from rollups where hints say which windows Prometheus looks at.
type hinted struct {
	coarsest rollup.Resolution
	// lookback is that of the client, in milliseconds.
	lookback int64
}

// hintedOf returns what the URL of a request says. Without max_source_resolution it is all samples.
func hintedOf(r *http.Request) (h hinted, err error) {
	params := r.URL.Query()
	h.lookback = defaultLookback.Milliseconds()
	if params.Has(paramResolution) {
		if h.coarsest, err = eval.ParseCoarsest(params.Get(paramResolution)); err != nil {
			return h, request.BadRequest("invalid parameter %q: %w", paramResolution, err)
		}
	}
	if text := params.Get(paramLookback); text != "" {
		lookback, err := model.ParseDuration(text)
		if err != nil || lookback == 0 {
			return h, request.BadRequest("invalid parameter %q: it has to be a duration such as 5m, and more than 0", paramLookback)
		}
		h.lookback = time.Duration(lookback).Milliseconds()
	}
	return h, nil
}

// reduce asks for less than all samples of a query where its hints say that this gives the same. Then samples beyond the times of its hints are left out, as
// Prometheus' own storage does.
func (h hinted) reduce(q *reader.Query, hints *prompb.ReadHints) {
	if h.coarsest == rollup.Raw || hints == nil || q.SeriesOnly || q.Mint > hints.StartMs {
		return
	}
	fn, ok := reductions[hints.Func]
	if hints.RangeMs == 0 {
		fn, ok = instant, true
	}
	w, coarsest := h.windows(hints, fn.lookbacks)
	if !ok || w.Count == 0 || w.Count > maxWindows {
		return
	}
	q.Mint, q.Maxt = hints.StartMs, min(q.Maxt, hints.EndMs)
	for w.Count > 0 && w.Start+int64(w.Count-1)*w.Step-w.Range >= q.Maxt { // They begin after what is asked for.
		w.Count--
	}
	w.Last = fn.reduce == reader.KeepLast
	q.Rollups = &reader.Rollups{Windows: w, Want: fn.want | rollup.Floats | rollup.Integers, Coarsest: coarsest, Reduce: fn.reduce}
}

// windows returns windows among which are all that Prometheus looks at, and the longest bucket with which these end. There are none if
// hints do not tell.
//
// Prometheus evaluates a selector at each step, but inside a subquery at multiples of its step instead, less the offset of the selector; and hints do not tell
// which. So windows end with each bucket, and the step is a multiple of it: then both are among them, but for an offset inside a subquery that is no such
// multiple. A range that ends where it begins is one window, wherever it is.
func (h hinted) windows(hints *prompb.ReadHints, lookbacks int64) (w rollup.Windows, coarsest rollup.Resolution) {
	start, end, step, length := hints.StartMs, hints.EndMs, hints.StepMs, cmp.Or(hints.RangeMs, h.lookback)
	if start < 0 || end > series.MaxTime || length < 0 || length > end-start+1 {
		return w, rollup.Raw
	}
	w = rollup.Windows{Start: start + length - 1, Range: length}
	if hints.RangeMs > 0 && w.Start == end {
		w.Step, w.Count = length, 1
		return w, h.coarsest
	}
	if step <= 0 {
		return w, rollup.Raw
	}
	// With another lookback than is thought, or a smoothed or anchored selector, the end is no step.
	for n := range lookbacks {
		if (end-w.Start)%step != 0 || (n+1)*h.lookback%step == 0 {
			return w, rollup.Raw
		}
	}
	for _, r := range slices.Backward(rollup.Downsampled) {
		if r <= h.coarsest && step%r.Span() == 0 && w.Start%r.Span() == 0 {
			w.Step, w.Count = r.Span(), int((end-w.Start)/r.Span())+1
			return w, r
		}
	}
	return w, rollup.Raw
}
