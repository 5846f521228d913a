package api

import (
	"errors"
	"net/http"

	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/reader"
)

const (
	// defaultNames and maxNames bound the parameter limit of /api/v1/metric_names.
	defaultNames = 200
	maxNames     = 1000
)

// metricNames is the answer of /api/v1/metric_names, see engine.Metrics.
type metricNames struct {
	MinTime int64               `json:"minTime"`
	MaxTime int64               `json:"maxTime"`
	Counted bool                `json:"counted"`
	Total   int                 `json:"total"`
	Found   int                 `json:"found"`
	Groups  []index.MetricGroup `json:"groups"`
	Names   []metricName        `json:"names"`
	Left    int                 `json:"left"`
}

// metricName is a metric with what is known of it.
type metricName struct {
	Name   string `json:"name"`
	Series uint64 `json:"series"`
	Type   string `json:"type,omitempty"`
	Unit   string `json:"unit,omitempty"`
	Help   string `json:"help,omitempty"`
}

// serveMetricNames answers /api/v1/metric_names: a level of the tree of the metric names that
// begin with prefix, or those that contain search.
func (a *API) serveMetricNames(w http.ResponseWriter, r *http.Request) {
	limit, err := boundedLimit(r, defaultNames, maxNames)
	if err != nil {
		badParameter(w, "limit", err)
		return
	}
	now := a.cfg.Now()
	q := index.MetricQuery{Prefix: r.FormValue("prefix"), Search: r.FormValue("search"), Limit: limit}
	if q.Time, err = dateParameter(r, "date", now, now.UnixMilli()); err != nil {
		badParameter(w, "date", err)
		return
	}
	found, said, err := a.cfg.Engine.MetricNames(r.Context(), q)
	switch {
	case errors.Is(err, reader.ErrNotKept):
		badParameter(w, "date", err)
		return
	case err != nil:
		respond(w, nil, mark(r.Context(), err))
		return
	}
	answer := metricNames{
		MinTime: found.Mint, MaxTime: found.Maxt, Counted: found.Counted,
		Total: found.Total, Found: found.Found, Groups: append([]index.MetricGroup{}, found.Groups...), Names: []metricName{}, Left: found.Left,
	}
	for _, n := range found.Names {
		m := said[n.Name]
		answer.Names = append(answer.Names, metricName{n.Name, n.Value, string(m.Type), m.Unit, m.Help})
	}
	respond(w, answer, nil)
}
