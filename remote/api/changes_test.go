package api_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/ingest"
)

// changed is the answer of /api/v1/changes.
type changed struct {
	Before, Start, End, Step float64
	Compared, Histograms     int
	Shifted                  []changedOne
	Appeared, Gone           struct {
		Count  int
		Series []changedOne
	}
}

type changedOne struct {
	Metric      map[string]string
	Score       float64
	Before, Now *struct{ Mean, Deviation float64 }
	Values      [][2]any
}

func (c changedOne) String() string { return fmt.Sprintf("%s %.4g", c.Metric["n"], c.Score) }

// names writes the series of a list, with their scores.
func names(list []changedOne) (all []string) {
	for _, c := range list {
		all = append(all, c.String())
	}
	return all
}

// fillChanged stores an hour of samples, one each minute, of which the last half hour is another.
func (f *fixture) fillChanged(t *testing.T) {
	t.Helper()
	var batch []ingest.Series
	add := func(name string, of func(minute int, isNow bool) float64) {
		s := ingest.Series{Labels: labels.FromStrings("__name__", "x", "n", name)}
		for minute := range 60 {
			if v := of(minute, minute >= 30); v != 99 {
				s.Samples = append(s.Samples, ingest.Sample{T: someTime - int64(59-minute)*60_000, V: v})
			}
		}
		batch = append(batch, s)
	}
	pick := func(before, now float64) func(int, bool) float64 {
		return func(_ int, isNow bool) float64 {
			if isNow {
				return now
			}
			return before
		}
	}
	add("appeared", pick(math.NaN(), 3))
	add("flat", pick(7, 7))
	add("gone", pick(3, math.NaN()))
	add("hair", pick(1, 1+1e-9))
	add("inf", pick(math.Inf(1), math.Inf(1)))
	add("level", pick(100, 101))                        // by less than the least deviation
	add("noisy", func(minute int, isNow bool) float64 { // 4 and 6, then 9 and 11
		return pick(5, 10)(0, isNow) + float64(minute%2*2-1)
	})
	add("wild", func(minute int, isNow bool) float64 { return pick(0, 10)(0, isNow) + float64(minute%2*200-100) })
	add("zero", pick(0, 1e-5))
	h := ingest.Series{Labels: labels.FromStrings("__name__", "x", "n", "histogram")}
	for minute := range 60 {
		h.Histograms = append(h.Histograms, ingest.Histogram{T: someTime - int64(59-minute)*60_000, H: &histogram.Histogram{Count: 1, Sum: 1, ZeroCount: 1}})
	}
	var rejected ingest.Rejected
	if _, err := f.engine.Append(t.Context(), append(batch, h), &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
}

// TestChanges: the series of an expression are ranked by how much they differ from the span before; what is in one span only is told apart.
func TestChanges(t *testing.T) {
	f := serve(t, nil)
	f.fillChanged(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		var got changed
		answer := f.ask(t, method, "/api/v1/changes", params("query", "x", "start", at(-1800), "end", at(0)))
		if err := json.Unmarshal(answer.Data, &got); err != nil || answer.status != 200 {
			t.Fatalf("%s: %d %s %v", method, answer.status, answer.Error, err)
		}
		if want := []string{"zero 100", "noisy 5", "level 0.9901", "wild 0.1", "hair 1e-07"}; !slices.Equal(names(got.Shifted), want) {
			t.Errorf("shifted: %q, want %q", names(got.Shifted), want)
		}
		if got.Compared != 6 || got.Histograms != 1 || got.Step != 60 || got.End-got.Start != 1800 || got.Start-got.Before != 1800 {
			t.Errorf("compared %d, histograms %d, step %v, from %v to %v", got.Compared, got.Histograms, got.Step, got.Start, got.End)
		}
		if got.Appeared.Count != 1 || names(got.Appeared.Series)[0] != "appeared 0" || got.Gone.Count != 1 || names(got.Gone.Series)[0] != "gone 0" {
			t.Errorf("appeared %v, gone %v", got.Appeared, got.Gone)
		}
		noisy := got.Shifted[1]
		if noisy.Before.Mean != 5 || noisy.Before.Deviation != 1 || noisy.Now.Mean != 10 || len(noisy.Values) != 60 || noisy.Values[59] != [2]any{float64(someTime) / 1000, "11"} {
			t.Errorf("noisy is %v to %v, %v", noisy.Before, noisy.Now, noisy.Values[len(noisy.Values)-1])
		}
	}
	var got changed
	answer := f.ask(t, http.MethodGet, "/api/v1/changes", params("query", "x", "start", at(-1800), "end", at(0), "limit", "2"))
	if err := json.Unmarshal(answer.Data, &got); err != nil || len(got.Shifted) != 2 || got.Compared != 6 {
		t.Errorf("limited: %v, %v", got, err)
	}
	// Long spans are of whole buckets of rollups, and end within the last one.
	answer = f.ask(t, http.MethodGet, "/api/v1/changes", params("query", "x", "start", at(-86400*7), "end", at(0)))
	if err := json.Unmarshal(answer.Data, &got); err != nil || got.Step != 5*3600 || got.End != math.Floor(float64(someTime)/3.6e6)*3600 {
		t.Errorf("a week: %v, %v", got, err)
	}
	for query, want := range map[string]struct {
		status int
		text   string
	}{
		"query=&start=" + at(-60):                   {400, `invalid parameter "query"`},
		"query=x[&start=" + at(-60):                 {400, "parse error"},
		"query=x":                                   {400, `invalid parameter "start"`},
		"query=x&start=" + at(10) + "&end=" + at(0): {400, `invalid parameter "start"`},
		"query=x&limit=0&start=" + at(-60):          {400, "from 1 to 200"},
		"query=label_replace(x,\"n\",\"\",\"\",\"\")&start=" + at(-3600): {422, "same labelset"},
		"query=x&max_source_resolution=y&start=" + at(-60):               {400, "max_source_resolution"},
	} {
		pairs := []string{}
		for pair := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			pairs = append(pairs, name, value)
		}
		if got := f.ask(t, http.MethodGet, "/api/v1/changes", params(pairs...)); got.status != want.status || !strings.Contains(got.Error, want.text) {
			t.Errorf("%s: %d %s, want %d with %q", query, got.status, got.Error, want.status, want.text)
		}
	}
	f.store.fail.Store(true)
	if got := f.ask(t, http.MethodGet, "/api/v1/changes", params("query", "x", "start", at(-1801), "end", at(-1))); got.status != 503 {
		t.Errorf("the store fails: %d %s", got.status, got.Error)
	}
}
