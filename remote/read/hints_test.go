package read_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series/rollup"
)

// TestReadHints: hints say which windows are read from rollups, of a request that asks for it.
func TestReadHints(t *testing.T) {
	const minute, hour, start = int64(60_000), int64(3600_000), int64(19_000) * rollup.Day
	ranged := func(fn string, length, step, count int64) prompb.ReadHints { // as of a query whose first step is start
		return prompb.ReadHints{Func: fn, StartMs: start - length + 1, EndMs: start + count*step, StepMs: step, RangeMs: length}
	}
	moved := func(h prompb.ReadHints, by int64) prompb.ReadHints {
		h.StartMs, h.EndMs = h.StartMs+by, h.EndMs+by
		return h
	}
	selector := func(step, count, lookback int64) prompb.ReadHints {
		return prompb.ReadHints{Func: "sum", StartMs: start - lookback + 1, EndMs: start + count*step, StepMs: step}
	}
	const auto = "?max_source_resolution=auto"
	for _, tt := range []struct {
		name, params string
		hints        prompb.ReadHints
		// maxt is the end of the query, unless it is 0: that of the hints.
		maxt int64
		want string
	}{
		{"no parameter", "", ranged("rate", hour, hour, 9), 0, ""},
		{"samples", "?max_source_resolution=0s", ranged("rate", hour, hour, 9), 0, ""},
		{"hours", auto, ranged("rate", hour, hour, 9), 0, "1h 10 of 1h"},
		{"up to 5 minutes", "?max_source_resolution=5m", ranged("rate", hour, hour, 9), 0, "5m 109 of 5m"},
		{"the rate interval", auto, ranged("rate", hour+15_000, hour, 9), 0, "1h 10 of 1h"},
		{"a step of a day", auto, ranged("max_over_time", 24*hour, 24*hour, 2), 0, "1h 49 of 1h"},
		{"half an hour from UTC", auto, moved(ranged("max_over_time", hour, hour, 9), 30*minute), 0, "5m 109 of 5m"},
		{"no bucket ends with a step", auto, moved(ranged("max_over_time", hour, hour, 9), minute), 0, ""},
		{"a step of minutes", auto, ranged("max_over_time", hour, minute, 9), 0, ""},
		{"one window anywhere", auto, moved(ranged("increase", 100*hour, 0, 0), 12_345), 0, "1h 1 of 100h"},
		{"samples are counted", auto, ranged("count_over_time", hour, hour, 9), 0, ""},
		{"a function of two samples", auto, ranged("irate", hour, hour, 9), 0, ""},
		{"a range without a function", auto, ranged("", hour, 0, 0), 0, ""},
		{"a selector", auto, selector(hour, 9, 5*minute), 0, "1h 10 of 1h last"},
		{"another lookback", auto, selector(hour, 9, 6*minute), 0, ""},
		{"another lookback that is named", auto + "&lookback_delta=6m", selector(hour, 9, 6*minute), 0, "1h 10 of 1h last"},
		{"a step no longer than the lookback", auto, selector(5*minute, 9, 5*minute), 0, ""},
		{"an instant selector", auto, selector(0, 0, 5*minute), 0, ""},
		{"an anchored selector", auto, func() prompb.ReadHints {
			h := ranged("rate", hour, hour, 9)
			h.StartMs -= 5 * minute
			return h
		}(), 0, ""},
		{"a smoothed selector", auto, func() prompb.ReadHints {
			h := selector(hour, 9, 5*minute)
			h.EndMs += 5 * minute
			return h
		}(), 0, ""},
		{"left-closed windows", auto, moved(ranged("max_over_time", hour, hour, 9), -1), 0, ""},
		{"the rest is local", auto, ranged("max_over_time", 2*hour, hour, 9), start + 3*hour, "1h 5 of 1h"},
		{"all is local", auto, ranged("max_over_time", hour, hour, 9), start - hour, "1h 0 of 1h"},
		{"negative times", auto, prompb.ReadHints{Func: "max_over_time", StartMs: -2*hour + 1, EndMs: 9 * hour, StepMs: hour, RangeMs: hour}, 0, ""},
		{"all times", auto, prompb.ReadHints{Func: "max_over_time", StartMs: 1, EndMs: 1<<63 - 1, StepMs: hour, RangeMs: hour}, 0, ""},
		{"too many windows", auto, prompb.ReadHints{Func: "max_over_time", StartMs: 1, EndMs: 9_999_999_999_000, StepMs: 5 * minute, RangeMs: 5 * minute}, 0, ""},
		{"an endless range", auto, prompb.ReadHints{Func: "max_over_time", StartMs: 1, EndMs: hour, StepMs: hour, RangeMs: 1<<63 - 1}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eng := &remotetest.Engine{}
			url, _ := remotetest.Serve(t, eng, nil)
			q := remotetest.Query(0, max(tt.hints.EndMs, tt.hints.EndMs+hour), remotetest.Eq("__name__", "up"))
			q.StartTimestampMs = min(0, tt.hints.StartMs)
			if tt.maxt != 0 {
				q.EndTimestampMs = tt.maxt
			}
			q.Hints = &tt.hints
			plain := remotetest.Query(5, 6, remotetest.Eq("__name__", "up")) // of the same request, with its own hints
			answer := remotetest.Send(t, http.MethodPost, url+"/api/v1/read"+tt.params, http.Header{"Content-Type": {remotetest.TypeV1}, "Content-Encoding": {"snappy"}},
				snappy.Encode(nil, wiretest.Marshal(t, &prompb.ReadRequest{Queries: []*prompb.Query{q, plain}})))
			answer.WantStatus(t, http.StatusOK)
			if tt.name == "all is local" {
				if len(eng.Queries) != 1 {
					t.Errorf("the engine was asked %+v", eng.Queries)
				}
				return
			}
			asked := eng.Queries[0]
			if got := windowsText(asked); got != tt.want || eng.Queries[1].Rollups != nil {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if asked.Rollups != nil && (asked.Mint != tt.hints.StartMs || asked.Maxt != min(q.EndTimestampMs, tt.hints.EndMs)) {
				t.Errorf("from %d to %d", asked.Mint, asked.Maxt)
			}
		})
	}
}

func windowsText(q reader.Query) string {
	if q.Rollups == nil {
		return ""
	}
	w := q.Rollups.Windows
	text := fmt.Sprintf("%s %d of %s", q.Rollups.Coarsest, w.Count, time.Duration(w.Step)*time.Millisecond)
	for _, zeros := range []string{"0s", "0m"} {
		if n := len(text) - len(zeros); text[n:] == zeros && n > 0 && (text[n-1] == 'm' || text[n-1] == 'h') {
			text = text[:n]
		}
	}
	if w.Last {
		text += " last"
	}
	return text
}

// TestReadHintParameters: parameters that are none are refused.
func TestReadHintParameters(t *testing.T) {
	url, _ := remotetest.Serve(t, &remotetest.Engine{}, nil)
	for _, params := range []string{"max_source_resolution=often", "lookback_delta=0s", "lookback_delta=-5m", "lookback_delta=soon"} {
		answer := remotetest.Send(t, http.MethodPost, url+"/api/v1/read?"+params, http.Header{"Content-Type": {remotetest.TypeV1}, "Content-Encoding": {"snappy"}},
			snappy.Encode(nil, wiretest.Marshal(t, remotetest.StreamedRequest())))
		answer.WantStatus(t, http.StatusBadRequest)
	}
}
