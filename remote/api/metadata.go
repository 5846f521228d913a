package api

import "net/http"

// metadataEntry is the metadata of a metric as one target tells it, in
// Prometheus; here there is one entry for each metric.
type metadataEntry struct {
	Type string `json:"type"`
	Unit string `json:"unit"`
	Help string `json:"help"`
}

// serveMetadata answers /api/v1/metadata. Its parameters are metric, limit and
// limit_per_metric, as in Prometheus.
func (a *API) serveMetadata(w http.ResponseWriter, r *http.Request) {
	limit, err := limitParameter(r, "limit", -1)
	if err != nil {
		badParameter(w, "limit", err)
		return
	}
	perMetric, err := limitParameter(r, "limit_per_metric", -1)
	if err != nil {
		badParameter(w, "limit_per_metric", err)
		return
	}
	entries := make(map[string][]metadataEntry)
	if limit == 0 || perMetric == 0 {
		respond(w, entries, nil)
		return
	}
	found, err := a.cfg.Engine.Metadata(r.Context(), r.FormValue("metric"), limit)
	for _, m := range found {
		entries[m.Family] = []metadataEntry{{Type: string(m.Type), Help: m.Help, Unit: m.Unit}}
	}
	respond(w, entries, mark(r.Context(), err))
}
