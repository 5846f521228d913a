package api

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/reader"
)

// unreadAfter is how long nothing has read what is listed as not read.
const unreadAfter = 30 * 24 * time.Hour

// maxUnread bounds the lists of what is not read.
const maxUnread = 1000

// usage is the answer of /api/v1/status/usage.
type usage struct {
	// From is since when nothing has read the metrics and labels, in milliseconds: 30 days, or the start of the process. They are sorted by series, the
	// most first.
	From          int64         `json:"from"`
	UnreadMetrics []index.Count `json:"unreadMetrics"`
	UnreadLabels  []index.Count `json:"unreadLabels"`
	// Limits are those of --limits.file, with the part that is used.
	Limits []usedLimit `json:"limits"`
}

type usedLimit struct {
	Name string  `json:"name"`
	Used float64 `json:"used"`
}

// serveUsage answers /api/v1/status/usage.
func (a *API) serveUsage(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	if err := a.passes.Acquire(ctx, 1); err != nil {
		respond(w, nil, err)
		return
	}
	defer a.passes.Release(ctx, 1)
	now := a.cfg.Now()
	c, _, err := a.cfg.Engine.Cardinality(ctx, reader.CountQuery{Time: now.UnixMilli(), Top: maxUnread, Before: -1})
	if err != nil {
		respond(w, nil, mark(ctx, err))
		return
	}
	names := func(counts []index.Count) (all []string) {
		for _, of := range counts {
			all = append(all, of.Name)
		}
		return all
	}
	metrics, labels, from, err := a.cfg.Engine.Unread(ctx, now.Add(-unreadAfter), names(c.Metrics), names(c.SeriesByLabel))
	if err != nil {
		respond(w, nil, mark(ctx, err))
		return
	}
	of := func(counts []index.Count, unread []string) []index.Count {
		found := []index.Count{}
		for _, c := range counts {
			if slices.Contains(unread, c.Name) && c.Name != "__name__" {
				found = append(found, c)
			}
		}
		return found
	}
	answer := usage{From: from, UnreadMetrics: of(c.Metrics, metrics), UnreadLabels: of(c.SeriesByLabel, labels), Limits: []usedLimit{}}
	if a.cfg.LimitsUsed != nil {
		used := a.cfg.LimitsUsed(ctx)
		for _, name := range slices.SortedFunc(maps.Keys(used), func(x, y string) int { return cmp.Or(cmp.Compare(used[y], used[x]), cmp.Compare(x, y)) }) {
			answer.Limits = append(answer.Limits, usedLimit{name, used[name]})
		}
	}
	respond(w, answer, nil)
}
