package read_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/request"
)

// TestSlowRead: a read that takes as long as the threshold is logged, with its selectors and
// times, whether it fails or not. A clock that goes on by a second with each look says how
// long it takes.
func TestSlowRead(t *testing.T) {
	for _, kind := range remotetest.ResponseTypes {
		for _, tt := range []struct {
			name string
			fail error
			want []string
		}{
			{"success", nil, []string{`kind=read query="{job=\"a\"}; {job=\"b\"}" start=1970-01-01T00:00:01Z end=1970-01-01T00:01:00Z`, `seconds=1.000 status=success`}},
			{"failure", remotetest.ErrStore, []string{`status=error`, `err="query 0: the store is down"`}},
		} {
			t.Run(kind.String()+"/"+tt.name, func(t *testing.T) {
				var lines remotetest.SyncBuffer
				var looks atomic.Int64
				reg := prometheus.NewRegistry()
				eng := &remotetest.Engine{Series: remotetest.Stock()}
				if tt.fail != nil {
					eng.OnSelect = func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) { return nil, tt.fail }
				}
				url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) {
					cfg.SlowLog = request.NewSlowLog(request.SlowConfig{
						Logger: log.NewLogfmtLogger(&lines), Registerer: reg, SlowerThan: time.Second,
						Now: func() time.Time { return time.Unix(looks.Add(1), 0) },
					})
				})
				_, err := remotetest.Read(t, url, kind, remotetest.Query(1000, 5000, remotetest.Eq("job", "a")), remotetest.Query(2000, 60_000, remotetest.Eq("job", "b")))
				if (err != nil) != (tt.fail != nil) {
					t.Fatal(err)
				}
				for _, want := range tt.want {
					if got := lines.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
						t.Errorf("%q lacks %q", got, want)
					}
				}
				remotetest.WantCounter(t, reg, 1, "adapter_slow_queries_total", "kind", "read")
			})
		}
	}
}
