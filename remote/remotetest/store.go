package remotetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// Backends are the real stores.
var Backends = []struct {
	Name string
	Open func(t testing.TB) bucketstore.Store
}{
	{"pebble", OpenPebble},
	{"bigtable", func(t testing.TB) bucketstore.Store { return bigtabletest.Open(t) }},
}

func OpenPebble(t testing.TB) bucketstore.Store {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

// Handler returns the handler of an engine.
func Handler(e *engine.Engine, now func() time.Time) http.Handler {
	return request.WithBodies(remote.New(remote.Config{Engine: e, Now: now, Registerer: prometheus.NewRegistry(), MaxSamples: 50_000_000}))
}

// ServeStore starts a server over a real engine on store.
func ServeStore(t testing.TB, store bucketstore.Store, change ...func(*engine.Config)) (base string, reg *prometheus.Registry) {
	t.Helper()
	reg = prometheus.NewRegistry()
	eng := OpenEngine(t, store, reg, change...)
	srv := httptest.NewServer(remote.New(remote.Config{Engine: eng, Now: time.Now, Registerer: reg}))
	t.Cleanup(srv.Close)
	return srv.URL, reg
}

// OpenEngine opens a real engine on store, until the test ends.
func OpenEngine(t testing.TB, store bucketstore.Store, reg *prometheus.Registry, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	schema, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engine.Config{
		Store:      store,
		Appender:   bucketstore.NewDirect(store, schema, time.Now, nil),
		Schema:     schema,
		Now:        time.Now,
		Registerer: reg,
		MaxFuture:  10 * time.Minute,
		Limits:     reader.Limits{MaxSeries: 5000},
	}
	for _, fn := range change {
		fn(&cfg)
	}
	eng, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := eng.Close(ctx); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return eng
}
