package api

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/remote/request"
)

const (
	// changesPath is the path of the requests that compare a span of time with the one before it, for GET and POST.
	changesPath = "/api/v1/changes"
	// changesPoints is at how many times an expression is evaluated in each of the two spans, at least, if these are longer than as many seconds.
	changesPoints = 30
	// defaultChanges and maxChanges bound the parameter limit.
	defaultChanges = 20
	maxChanges     = 200
	// leastDeviation is the part of the larger mean that a deviation is at least, so that a tiny shift of a series that hardly varies is not
	// first.
	leastDeviation = 0.01
)

// changesPatterns are those requests.
func changesPatterns() []string { return []string{"GET " + changesPath, "POST " + changesPath} }

// shiftStatistic says what changes are ranked by.
const shiftStatistic = "difference of the means of the two spans, divided by the root of the mean of their variances, which counts as at least 1 % of the larger mean"

// changes is the answer: Start to End is the span, in seconds since 1970, of whole steps. It may end before what was asked for, so that rollups can answer.
type changes struct {
	Statistic string  `json:"statistic"`
	Before    float64 `json:"before"` // when the span before begins
	Start     float64 `json:"start"`
	End       float64 `json:"end"`
	Step      float64 `json:"step"`
	// Compared is how many series have values in both spans. Histograms are not compared.
	Compared   int           `json:"compared"`
	Histograms int           `json:"histograms"`
	Shifted    []change      `json:"shifted"`
	Appeared   changedSeries `json:"appeared"`
	Gone       changedSeries `json:"gone"`
}

// changedSeries are the series that have values in one span only: how many there are, and the first of them.
type changedSeries struct {
	Count  int      `json:"count"`
	Series []change `json:"series"`
}

// A change is a series with what it is in both spans. Score is 0 where there is nothing to compare.
type change struct {
	Metric labels.Labels `json:"metric"`
	Score  float64       `json:"score,omitempty"`
	Before *spread       `json:"before,omitempty"`
	Now    *spread       `json:"now,omitempty"`
	Values [][2]any      `json:"values"`
}

// A spread is the mean of values and their standard deviation.
type spread struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

// serveChanges answers changesPath: the series of an expression that differ most between a span of time and the one of the same length before it.
func (a *API) serveChanges(w http.ResponseWriter, r *http.Request) {
	limit, err := boundedLimit(r, defaultChanges, maxChanges)
	if err != nil {
		badParameter(w, "limit", err)
		return
	}
	end := formTime(r, "end")
	if r.FormValue("end") == "" {
		end = a.cfg.Now()
	}
	start := formTime(r, "start")
	if start.IsZero() || end.IsZero() || !start.Before(end) {
		badParameter(w, "start", fmt.Errorf("%q to %q are no times, one after the other", request.Abbreviate(r.FormValue("start")), request.Abbreviate(r.FormValue("end"))))
		return
	}
	span := end.Sub(start)
	step, end := changesSteps(span, end)
	n := max(1, int(span/step))
	ctx := r.Context()
	q, err := a.evaluated.NewRangeQuery(ctx, a.store, promql.NewPrometheusQueryOpts(false, 0, nil), r.FormValue("query"), end.Add(-time.Duration(2*n-1)*step), end, step)
	if err != nil {
		badParameter(w, "query", err)
		return
	}
	defer q.Close()
	res := q.Exec(ctx)
	if err := res.Err; err != nil {
		if !StoreFailed(err) {
			write(w, http.StatusUnprocessableEntity, response{Status: "error", ErrorType: "execution", Error: err.Error()})
			return
		}
		respond(w, nil, err)
		return
	}
	matrix, err := res.Matrix()
	if err != nil {
		respond(w, nil, err)
		return
	}
	border := end.Add(-time.Duration(n) * step).UnixMilli() // the last time of the span before
	answer := compare(matrix, border, limit)
	seconds := func(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
	answer.Before, answer.Start, answer.End, answer.Step = seconds(end.Add(-time.Duration(2*n)*step)), float64(border)/1000, seconds(end), step.Seconds()
	body := response{Status: "success", Data: answer}
	warnings, infos := res.Warnings.AsStrings(r.FormValue("query"), 0, 0)
	body.Warnings = append(warnings, infos...)
	slices.Sort(body.Warnings)
	write(w, http.StatusOK, body)
}

// changesSteps returns the step of a span that ends at a time, and that end. Long steps are whole hours or whole five minutes, and so is the end, as those of
// rollups are: it is earlier by less than that.
func changesSteps(span time.Duration, end time.Time) (time.Duration, time.Time) {
	step := span / changesPoints
	for _, bucket := range []time.Duration{time.Hour, 5 * time.Minute} {
		if step >= bucket {
			step = step.Truncate(bucket)
			return step, time.UnixMilli(end.UnixMilli() / bucket.Milliseconds() * bucket.Milliseconds())
		}
	}
	return max(time.Second, step.Truncate(time.Second)), end
}

// compare ranks the series of a matrix by how much their values after a time, in milliseconds, differ from those up to it, and returns the first of each kind.
func compare(matrix promql.Matrix, border int64, limit int) *changes {
	answer := &changes{Statistic: shiftStatistic, Shifted: []change{}, Appeared: changedSeries{Series: []change{}}, Gone: changedSeries{Series: []change{}}}
	type ranked struct {
		series promql.Series
		change
	}
	var shifted []ranked
	add := func(list *changedSeries, s promql.Series, c change) {
		list.Count++
		if len(list.Series) < limit {
			c.Metric, c.Values = s.Metric, pointsOf(s.Floats)
			list.Series = append(list.Series, c)
		}
	}
	for _, s := range matrix {
		if len(s.Histograms) > 0 {
			answer.Histograms++
			continue
		}
		i, _ := slices.BinarySearchFunc(s.Floats, border, func(p promql.FPoint, t int64) int { return cmp.Compare(p.T, t+1) })
		before, now := spreadOf(s.Floats[:i]), spreadOf(s.Floats[i:])
		switch c := (change{Before: before, Now: now}); {
		case before == nil && now == nil: // nothing but NaN and infinities
		case before == nil:
			add(&answer.Appeared, s, c)
		case now == nil:
			add(&answer.Gone, s, c)
		default:
			answer.Compared++
			if c.Score = scoreOf(*before, *now); c.Score > 0 {
				shifted = append(shifted, ranked{s, c})
			}
		}
	}
	slices.SortStableFunc(shifted, func(a, b ranked) int { return cmp.Compare(b.Score, a.Score) })
	for _, one := range shifted[:min(limit, len(shifted))] {
		one.Metric, one.Values = one.series.Metric, pointsOf(one.series.Floats)
		answer.Shifted = append(answer.Shifted, one.change)
	}
	return answer
}

// spreadOf returns that of the finite values of points, or nil if there is none.
func spreadOf(points []promql.FPoint) *spread {
	var n, mean, squares float64
	for _, p := range points {
		if math.IsNaN(p.F) || math.IsInf(p.F, 0) {
			continue
		}
		n++
		d := p.F - mean
		mean += d / n
		squares += d * (p.F - mean)
	}
	if n == 0 || math.IsInf(mean, 0) || math.IsNaN(mean) {
		return nil
	}
	return &spread{mean, math.Sqrt(squares / n)}
}

// scoreOf returns what shiftStatistic says.
func scoreOf(before, now spread) float64 {
	shift := math.Abs(now.Mean - before.Mean)
	least := leastDeviation * max(math.Abs(before.Mean), math.Abs(now.Mean))
	score := shift / max(least, math.Sqrt((before.Deviation*before.Deviation+now.Deviation*now.Deviation)/2))
	if math.IsNaN(score) || math.IsInf(score, 0) { // beyond what floats can tell
		return 0
	}
	return score
}

// pointsOf returns points as Prometheus' API writes them.
func pointsOf(points []promql.FPoint) [][2]any {
	written := make([][2]any, len(points))
	for i, p := range points {
		written[i] = [2]any{model.Time(p.T), strconv.FormatFloat(p.F, 'f', -1, 64)}
	}
	return written
}
