package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/promtable/promtable/remote/engine/eval"
)

// seriesHeader is the header of the answer to a range query with a limit that tells how many series there are without it.
const seriesHeader = "X-Promtable-Series"

// maxSeriesLimit is more than any answer has, and one more does not overflow.
const maxSeriesLimit = 1 << 30

// withLimit makes a range query with the parameter limit hold no more series than that, where it can:
// upstream's API cuts the answer when it is whole.
func withLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, err := limitParameter(r, "limit", 0)
		if err != nil || limit <= 0 || !strings.HasSuffix(r.URL.Path, "/query_range") { // upstream says what is wrong
			next.ServeHTTP(w, r)
			return
		}
		// One more tells upstream's API that there are more, which it warns of.
		series := &eval.Limit{Series: min(limit, maxSeriesLimit) + 1}
		next.ServeHTTP(limitWriter{w, series}, r.WithContext(eval.WithLimit(r.Context(), series)))
	})
}

// A limitWriter says how many series there are.
type limitWriter struct {
	http.ResponseWriter
	series *eval.Limit
}

func (w limitWriter) WriteHeader(status int) {
	if status == http.StatusOK {
		w.Header().Set(seriesHeader, strconv.Itoa(w.series.Found))
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w limitWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
