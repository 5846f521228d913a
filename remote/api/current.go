package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/engine/current"
)

const (
	// defaultCurrent and maxCurrent bound the parameter limit of /api/v1/current.
	defaultCurrent = 100_000
	maxCurrent     = 10_000_000
)

// serveCurrent answers /api/v1/current: the current sample of each series, or of
// those that any match[] selects, by one pass over CURRENT. The samples are as in
// an instant vector, in the order of row keys, whatever their age, but for series
// that have ended with a staleness marker. They are written as they are read; a
// pass that fails when some are out breaks the connection.
func (a *API) serveCurrent(w http.ResponseWriter, r *http.Request) {
	limit, err := boundedLimit(r, defaultCurrent, maxCurrent)
	if err != nil {
		badParameter(w, "limit", err)
		return
	}
	selectors, err := a.parser.ParseMetricSelectors(r.Form["match[]"])
	if err != nil {
		badParameter(w, "match[]", err)
		return
	}
	ctx := r.Context()
	if err := a.passes.Acquire(ctx, 1); err != nil {
		respond(w, nil, fmt.Errorf("wait for other passes over CURRENT: %w", err))
		return
	}
	defer a.passes.Release(ctx, 1)
	answer := currentAnswer{w: w}
	found, err := a.cfg.Engine.Inventory(ctx, selectors, limit, answer.sample)
	switch {
	case err == nil:
		answer.end(found)
	case answer.body == nil:
		respond(w, nil, mark(ctx, err))
	default:
		panic(http.ErrAbortHandler) // never half an answer that looks whole
	}
}

// A currentAnswer writes samples as they come.
type currentAnswer struct {
	w    http.ResponseWriter
	body *bufio.Writer // nil before the first sample
}

// sample writes one.
func (c *currentAnswer) sample(s current.Sample) error {
	text, err := json.Marshal(sampleJSON(s))
	if err != nil {
		return fmt.Errorf("write %s: %w", s.Labels, err)
	}
	if c.body == nil {
		c.begin()
	} else {
		c.body.WriteByte(',')
	}
	_, err = c.body.Write(text)
	return err
}

func (c *currentAnswer) begin() {
	c.w.Header().Set("Content-Type", "application/json")
	c.body = bufio.NewWriterSize(c.w, 64<<10)
	c.body.WriteString(`{"status":"success","data":{"samples":[`)
}

// end writes what comes after the samples.
func (c *currentAnswer) end(found current.Inventory) {
	if c.body == nil {
		c.begin()
	}
	fmt.Fprintf(c.body, `],"rowsRead":%d,"truncated":%t}}`, found.Rows, found.Truncated)
	_ = c.body.Flush() // an error: the client has hung up
}

// A currentSample is a sample as the answer to an instant query has it: with numbers as upstream's API writes them, which its type
// promql.Sample does not do by itself.
type currentSample struct {
	Metric    labels.Labels `json:"metric"`
	Value     *[2]any       `json:"value,omitempty"`
	Histogram *[2]any       `json:"histogram,omitempty"`
}

func sampleJSON(s current.Sample) currentSample {
	seconds := float64(s.T) / 1000
	h := floats(s)
	if h == nil {
		return currentSample{Metric: s.Labels, Value: &[2]any{seconds, floatText(s.V)}}
	}
	return currentSample{Metric: s.Labels, Histogram: &[2]any{seconds, histogramJSON(h)}}
}

type currentHistogram struct {
	Count   string   `json:"count"`
	Sum     string   `json:"sum"`
	Buckets [][4]any `json:"buckets,omitempty"`
}

// histogramJSON returns the buckets that are not empty, each with which of its bounds belong to it, its bounds, and its count.
func histogramJSON(h *histogram.FloatHistogram) currentHistogram {
	out := currentHistogram{Count: floatText(h.Count), Sum: floatText(h.Sum)}
	for it := h.AllBucketIterator(); it.Next(); {
		b := it.At()
		if b.Count != 0 {
			out.Buckets = append(out.Buckets, [4]any{boundaries(b), floatText(b.Lower), floatText(b.Upper), floatText(b.Count)})
		}
	}
	return out
}

// boundaries returns the number by which the API says which bounds belong to a bucket.
func boundaries(b histogram.Bucket[float64]) int {
	switch {
	case b.LowerInclusive && b.UpperInclusive:
		return 3
	case b.LowerInclusive:
		return 1
	case b.UpperInclusive:
		return 0
	}
	return 2
}

// floatText writes a number with an exponent where it would have many zeros, as encoding/json does.
func floatText(v float64) string {
	format := byte('f')
	if size := math.Abs(v); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	return strconv.FormatFloat(v, format, -1, 64)
}

// floats returns the histogram of s with float counts, or nil.
func floats(s current.Sample) *histogram.FloatHistogram {
	if s.H != nil {
		return s.H.ToFloat(nil)
	}
	return s.FH
}
