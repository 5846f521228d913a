package remote_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// TestCutProtocols compares the answers of a store that has samples before the cut with those
// of one that has none: both kinds of remote read, a federation, an explanation.
func TestCutProtocols(t *testing.T) {
	for _, backend := range remotetest.Backends {
		t.Run(backend.Name, func(t *testing.T) {
			now := time.Now().Add(-time.Minute).UnixMilli()
			cut := now - 50
			send := func(base string, from int64) {
				t.Helper()
				old := ingest.Series{Labels: labels.FromStrings("__name__", "old")}
				young := ingest.Series{Labels: labels.FromStrings("__name__", "young")}
				for at := now - 100; at < now; at++ {
					if at >= from {
						young.Samples = append(young.Samples, ingest.Sample{T: at, V: float64(at)})
					}
				}
				batch := []ingest.Series{young}
				if from < cut {
					old.Samples = []ingest.Sample{{T: cut - 1, V: 1}}
					batch = append(batch, old)
				}
				remotetest.Post(t, base+"/api/v1/write", remotetest.TypeV1, wiretest.EncodeV1(t, batch)).WantStatus(t, http.StatusNoContent)
			}
			// It takes all samples before it cuts.
			var cutting atomic.Bool
			all, _ := remotetest.ServeStore(t, backend.Open(t), func(cfg *engine.Config) {
				cfg.Timeline = timelinetest.Cut(func(time.Time) int64 {
					if cutting.Load() {
						return cut
					}
					return 0
				})
			})
			send(all, 0)
			cutting.Store(true)
			kept, _ := remotetest.ServeStore(t, backend.Open(t))
			send(kept, cut)
			for _, kind := range remotetest.ResponseTypes {
				for _, r := range [][2]int64{{math.MinInt64, math.MaxInt64}, {cut - 1, cut}, {cut, cut}, {cut - 5, cut - 1}, {cut + 1, cut + 2}} {
					got, err := remotetest.Read(t, all, kind, remotetest.Query(r[0], r[1]))
					if err != nil {
						t.Fatal(err)
					}
					want, err := remotetest.Read(t, kept, kind, remotetest.Query(r[0], r[1]))
					if err != nil {
						t.Fatal(err)
					}
					remotetest.WantSeries(t, got, want)
				}
			}
			for _, path := range []string{"/federate?match[]=" + url.QueryEscape(`{__name__=~".+"}`), "/federate?match[]=old"} {
				got, want := remotetest.Send(t, http.MethodGet, all+path, nil, nil), remotetest.Send(t, http.MethodGet, kept+path, nil, nil)
				if got.Status != 200 || got.Body != want.Body {
					t.Errorf("%s: %d\n%s\nwant\n%s", path, got.Status, got.Body, want.Body)
				}
			}
			got := remotetest.Send(t, http.MethodGet, fmt.Sprintf("%s/api/v1/explain?match[]=young&start=%d&end=%d", all, (cut-1000)/1000, now/1000+1), nil, nil)
			var explained remotetest.Explained
			if err := json.Unmarshal([]byte(got.Body), &explained); err != nil || len(explained.Data) != 1 || explained.Data[0].Mint != cut {
				t.Errorf("%v: %d %s, want it from %d on", err, got.Status, got.Body, cut)
			}
		})
	}
}
