package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
)

// seriesHeader is the header of the answer to a range query with a limit that tells how many series there are without it.
const seriesHeader = "X-Promtable-Series"

// exemplarsHeader is the header of the answer to a query of exemplars with a limit that tells how many there are without it, and
// maxExemplars is the greatest limit.
const (
	exemplarsHeader = "X-Promtable-Exemplars"
	maxExemplars    = 10_000
)

// maxSeriesLimit is more than any answer has, and one more does not overflow.
const maxSeriesLimit = 1 << 30

// withLimit makes a range query with the parameter limit hold no more series than that, where it can:
// upstream's API cuts the answer when it is whole. Upstream's queries of exemplars have no such parameter.
func withLimit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, err := limitParameter(r, "limit", 0)
		switch isExemplars := strings.HasSuffix(r.URL.Path, "/query_exemplars"); {
		case err != nil && isExemplars:
			badParameter(w, "limit", err)
		case err != nil || limit <= 0: // upstream says what is wrong
			next.ServeHTTP(w, r)
		case isExemplars:
			exemplars := &reader.ExemplarLimit{Max: min(limit, maxExemplars)}
			next.ServeHTTP(limitWriter{w, exemplarsHeader, &exemplars.Found}, r.WithContext(reader.WithExemplarLimit(r.Context(), exemplars)))
		case strings.HasSuffix(r.URL.Path, "/query_range"):
			// One more tells upstream's API that there are more, which it warns of.
			series := &eval.Limit{Series: min(limit, maxSeriesLimit) + 1}
			next.ServeHTTP(limitWriter{w, seriesHeader, &series.Found}, r.WithContext(eval.WithLimit(r.Context(), series)))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// A limitWriter says in a header how many there are without a limit.
type limitWriter struct {
	http.ResponseWriter
	header string
	found  *int
}

func (w limitWriter) WriteHeader(status int) {
	if status == http.StatusOK {
		w.Header().Set(w.header, strconv.Itoa(*w.found))
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w limitWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
