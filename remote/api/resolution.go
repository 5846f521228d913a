package api

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/series/rollup"
)

// maxResolution is the parameter of Thanos that bounds the resolution of what a query reads.
const maxResolution = "max_source_resolution"

// withMaxResolution makes queries read no buckets that are longer than the client allows. Their answers are not cached.
func withMaxResolution(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch text := r.FormValue(maxResolution); text {
		case "", "auto":
		default:
			coarsest, err := parseResolution(text)
			if err != nil {
				badParameter(w, maxResolution, err)
				return
			}
			r = r.WithContext(resultcache.WithoutCache(eval.WithCoarsest(r.Context(), coarsest)))
		}
		next.ServeHTTP(w, r)
	})
}

// parseResolution returns the longest resolution of up to a duration.
func parseResolution(text string) (coarsest rollup.Resolution, err error) {
	longest, err := model.ParseDuration(text)
	if err != nil {
		return 0, errors.New("it has to be auto, 0s, 5m or 1h")
	}
	for _, r := range rollup.Resolutions {
		if time.Duration(r)*time.Millisecond <= time.Duration(longest) {
			coarsest = r
		}
	}
	return coarsest, nil
}
