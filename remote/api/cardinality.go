package api

import (
	"fmt"
	"net/http"

	"github.com/promtable/promtable/remote/engine"
)

const (
	// defaultTop and maxTop bound the parameter limit, as in Prometheus.
	defaultTop = 10
	maxTop     = 10_000
)

// tsdbStatus is the answer, in the form of Prometheus, which has more to say of
// its own memory.
type tsdbStatus struct {
	HeadStats                   headStats      `json:"headStats"`
	SeriesCountByMetricName     []engine.Count `json:"seriesCountByMetricName"`
	LabelValueCountByLabelName  []engine.Count `json:"labelValueCountByLabelName"`
	MemoryInBytesByLabelName    []engine.Count `json:"memoryInBytesByLabelName"`
	SeriesCountByLabelValuePair []engine.Count `json:"seriesCountByLabelValuePair"`
}

type headStats struct {
	NumSeries     int   `json:"numSeries"`
	NumLabelPairs int   `json:"numLabelPairs"`
	ChunkCount    int   `json:"chunkCount"`
	MinTime       int64 `json:"minTime"`
	MaxTime       int64 `json:"maxTime"`
}

// serveCardinality answers /api/v1/status/tsdb: the series of the running index
// period, which metrics, labels and pairs they are of. The memory is the bytes
// of the values of a label.
func (a *API) serveCardinality(w http.ResponseWriter, r *http.Request) {
	limit, err := limitParameter(r, "limit", defaultTop)
	if err == nil && (limit < 1 || limit > maxTop) {
		err = fmt.Errorf("it must be from 1 to %d", maxTop)
	}
	if err != nil {
		badParameter(w, "limit", err)
		return
	}
	c, err := a.cfg.Engine.Cardinality(r.Context(), max(limit, defaultTop))
	if err != nil {
		respond(w, nil, mark(err))
		return
	}
	respond(w, tsdbStatus{
		HeadStats:                   headStats{NumSeries: c.Series, NumLabelPairs: c.Pairs, MinTime: c.Mint, MaxTime: c.Maxt},
		SeriesCountByMetricName:     top(c.Metrics, limit),
		LabelValueCountByLabelName:  top(c.Labels, limit),
		MemoryInBytesByLabelName:    top(c.LabelBytes, limit),
		SeriesCountByLabelValuePair: top(c.SeriesByPair, limit),
	}, nil)
}

func top(counts []engine.Count, limit int) []engine.Count {
	if counts == nil {
		return []engine.Count{} // not null
	}
	return counts[:min(len(counts), limit)]
}
