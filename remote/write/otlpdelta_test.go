package write_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/remote/write"
)

// serveOTLP serves an engine for each tenant, which a request names in the header X-Scope-OrgID.
func serveOTLP(t *testing.T, otlp write.OTLPConfig, tenants map[string]bucketstore.Store) (base string, reg *prometheus.Registry) {
	t.Helper()
	engines := map[string]*engine.Engine{}
	for name, store := range tenants {
		engines[name] = remotetest.OpenEngine(t, store, prometheus.NewRegistry())
	}
	reg = prometheus.NewRegistry()
	h := remote.New(remote.Config{
		Engine: engines[""], Now: time.Now, Registerer: reg, OTLP: otlp,
		Writer: func(ctx context.Context) (write.Engine, error) { return engines[scope.Of(ctx)], nil },
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(scope.With(r.Context(), []string{r.Header.Get("X-Scope-OrgID")})))
	}))
	t.Cleanup(func() {
		srv.Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv.URL, reg
}

// deltaAt is a sum of delta temporality of the last second before at, one data point of each of these streams.
func deltaAt(t *testing.T, at time.Time, value int64, streams ...string) []byte {
	t.Helper()
	metrics := pmetric.NewMetrics()
	m := metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("orders")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	sum.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for _, stream := range streams {
		point := sum.DataPoints().AppendEmpty()
		point.SetStartTimestamp(pcommon.NewTimestampFromTime(at.Add(-time.Second)))
		point.SetTimestamp(pcommon.NewTimestampFromTime(at))
		point.SetIntValue(value)
		point.Attributes().PutStr("stream", stream)
	}
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// sendOTLP sends metrics of a tenant, and returns the status and how many data points were rejected.
func sendOTLP(t *testing.T, base, tenant string, body []byte) (status int, rejected int64) {
	t.Helper()
	answer := remotetest.Send(t, http.MethodPost, base+"/api/v1/otlp/v1/metrics", http.Header{"Content-Type": {otlpType}, "X-Scope-OrgID": {tenant}}, body)
	response := pmetricotlp.NewExportResponse()
	if answer.Status == http.StatusOK {
		if err := response.UnmarshalProto([]byte(answer.Body)); err != nil {
			t.Fatal(err)
		}
	}
	return answer.Status, response.PartialSuccess().RejectedDataPoints()
}

// wantOTLP sends metrics and wants this answer.
func wantOTLP(t *testing.T, base, tenant string, body []byte, wantStatus int, wantRejected int64) {
	t.Helper()
	if status, rejected := sendOTLP(t, base, tenant, body); status != wantStatus || rejected != wantRejected {
		t.Errorf("status %d, %d rejected; want %d, %d", status, rejected, wantStatus, wantRejected)
	}
}

// wantOrders wants these samples of the metric of deltaAt.
func wantOrders(t *testing.T, base string, want ...string) {
	t.Helper()
	got := namedTexts(t, base, "orders_total")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("stored\n%q\nwant\n%q", got, want)
	}
}

// order is a sample of deltaAt, from start on.
func order(at, start time.Time, value float64) string {
	return remotetest.ValueText(at.UnixMilli(), start.Add(-time.Second).UnixMilli(), value, nil, nil)
}

func TestDeltas(t *testing.T) {
	first := time.Now().Truncate(time.Millisecond).Add(-time.Minute)
	second := first.Add(time.Second)
	for _, tt := range []struct {
		name     string
		otlp     write.OTLPConfig
		rejected []int64 // of a delta, a later one, the same again, and one of another stream
		dropped  float64
		want     []string
	}{
		{"rejected", write.OTLPConfig{}, []int64{1, 1, 1, 1}, 0, nil},
		{"stored", write.OTLPConfig{Deltas: write.StoreDeltas}, []int64{0, 0, 0, 0}, 0, []string{order(first, first, 3), order(second, second, 4), order(second, second, 7)}},
		{"added up", write.OTLPConfig{Deltas: write.SumDeltas}, []int64{0, 0, 1, 0}, 1, []string{order(first, first, 3), order(second, first, 7), order(second, second, 7)}},
		{"of few streams", write.OTLPConfig{Deltas: write.SumDeltas, MaxStreams: 1}, []int64{0, 0, 1, 1}, 2, []string{order(first, first, 3), order(second, first, 7)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base, reg := serveOTLP(t, tt.otlp, map[string]bucketstore.Store{"": remotetest.OpenPebble(t)})
			for i, body := range [][]byte{deltaAt(t, first, 3, "a"), deltaAt(t, second, 4, "a"), deltaAt(t, second, 4, "a"), deltaAt(t, second, 7, "b")} {
				wantOTLP(t, base, "", body, 200, tt.rejected[i])
			}
			wantOrders(t, base, tt.want...)
			remotetest.WantCounter(t, reg, tt.dropped, "adapter_otlp_dropped_deltas_total")
		})
	}
}

// TestDeltaTenants: equal streams of two tenants have sums of their own.
func TestDeltaTenants(t *testing.T) {
	at := time.Now().Truncate(time.Millisecond)
	base, _ := serveOTLP(t, write.OTLPConfig{Deltas: write.SumDeltas}, map[string]bucketstore.Store{"": remotetest.OpenPebble(t), "other": remotetest.OpenPebble(t)})
	wantOTLP(t, base, "other", deltaAt(t, at, 3, "a"), 200, 0)
	wantOTLP(t, base, "", deltaAt(t, at, 4, "a"), 200, 0)
	wantOrders(t, base, order(at, at, 4))
}

// hookedStore is a store whose writes of samples go through a function.
type hookedStore struct {
	bucketstore.Store
	mu   sync.Mutex
	hook func() error
}

func (s *hookedStore) set(hook func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

func (s *hookedStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	if table == bucketstore.Metric && hook != nil {
		if err := hook(); err != nil {
			return err
		}
	}
	return s.Store.Apply(ctx, table, muts)
}

func fails() error { return remotetest.ErrStore }

// TestDeltaRetry: a delta that the store did not take counts once when its request is repeated, and the repetition stores it.
// If nothing is repeated, the next request stores it.
func TestDeltaRetry(t *testing.T) {
	first := time.Now().Truncate(time.Millisecond).Add(-time.Minute)
	second, third := first.Add(time.Second), first.Add(2*time.Second)
	store := &hookedStore{Store: remotetest.OpenPebble(t)}
	base, _ := serveOTLP(t, write.OTLPConfig{Deltas: write.SumDeltas}, map[string]bucketstore.Store{"": store})
	wantOTLP(t, base, "", deltaAt(t, first, 3, "a"), 200, 0)
	store.set(fails)
	for range 3 {
		wantOTLP(t, base, "", deltaAt(t, second, 4, "a"), 503, 0)
	}
	wantOrders(t, base, order(first, first, 3))
	store.set(nil)
	wantOTLP(t, base, "", deltaAt(t, second, 4, "a"), 200, 1)
	wantOrders(t, base, order(first, first, 3), order(second, first, 7))

	store.set(fails)
	wantOTLP(t, base, "", deltaAt(t, third, 5, "a", "b"), 503, 0)
	store.set(nil)
	wantOTLP(t, base, "", deltaAt(t, third, 1, "c"), 200, 0)
	wantOrders(t, base, order(first, first, 3), order(second, first, 7), order(third, first, 12), order(third, third, 5), order(third, third, 1))
}

// TestDeltaRetryWhileRunning: a request that is repeated while it runs is answered when its samples are stored, even if the
// one that ran then fails.
func TestDeltaRetryWhileRunning(t *testing.T) {
	at := time.Now().Truncate(time.Millisecond)
	store := &hookedStore{Store: remotetest.OpenPebble(t)}
	base, _ := serveOTLP(t, write.OTLPConfig{Deltas: write.SumDeltas}, map[string]bucketstore.Store{"": store})
	writes, release := make(chan struct{}), make(chan struct{})
	store.set(func() error {
		store.set(nil) // only this one
		close(writes)
		<-release
		return remotetest.ErrStore
	})
	body := deltaAt(t, at, 3, "a")
	var running sync.WaitGroup
	running.Go(func() { wantOTLP(t, base, "", body, 503, 0) })
	remotetest.Wait(t, writes)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		wantOTLP(t, base, "", body, 200, 1)
	}()
	close(release)
	remotetest.Wait(t, answered)
	wantOrders(t, base, order(at, at, 3))
	running.Wait()
}
