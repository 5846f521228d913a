package api

import (
	"net/http"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/resultcache"
)

// maxResolution is the parameter of Thanos that bounds the resolution of what a query reads.
const maxResolution = "max_source_resolution"

// withMaxResolution makes queries read no buckets that are longer than the client allows. Their answers are not cached.
func withMaxResolution(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch text := r.FormValue(maxResolution); text {
		case "", "auto":
		default:
			coarsest, err := eval.ParseCoarsest(text)
			if err != nil {
				badParameter(w, maxResolution, err)
				return
			}
			r = r.WithContext(resultcache.WithoutCache(eval.WithCoarsest(r.Context(), coarsest)))
		}
		next.ServeHTTP(w, r)
	})
}
