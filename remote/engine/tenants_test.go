package engine_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
)

// Engines of several tenants on one store do not see what the others have.
func TestTenants(t *testing.T) {
	for _, backend := range backends()[:2] {
		t.Run(backend.name, func(t *testing.T) {
			clock := newClock(someTime)
			store := backend.open(t, clock)
			tenants := []string{"a", "a,b", "b"}
			var engines []*fixture
			for i, tenant := range tenants {
				f := openOn(t, store, clock, func(c *engine.Config) {
					var err error
					if c.Schema, err = newSchema(t, "host").ForTenant(tenant); err != nil {
						t.Fatal(err)
					}
				})
				f.unchecked = true // a check is of the rows of one tenant
				engines = append(engines, f)
				f.append(t, f.written(1, samplesOfTenant(i))...)
				if err := f.AppendMetadata(t.Context(), []ingest.Metadata{newMetadata("up", "gauge", "", tenant)}, &ingest.Rejected{}); err != nil {
					t.Fatal(err)
				}
				// CURRENT has the samples once the engine is closed.
				f.reopen(t)
			}
			for i, f := range engines {
				tenant := tenants[i]
				wantSeries(t, tenant+": read", f.collect(t, everything()), samplesOfTenant(i)...)
				wantSeries(t, tenant+": current", f.current(t, 0), samplesOfTenant(i)...)
				if found, err := f.Inventory(t.Context(), nil, 10, func(current.Sample) error { return nil }); found.Rows != 2 || err != nil {
					t.Errorf("%s: %+v, %v", tenant, found, err)
				}
				f.wantMetadata(t, "", 0, newMetadata("up", "gauge", "", tenant))
			}
		})
	}
}

// samplesOfTenant is of a series that all tenants have, and of one of its own.
func samplesOfTenant(number int) []ingest.Series {
	own := labels.FromStrings("__name__", "up", "number", fmt.Sprint(number))
	return []ingest.Series{sample(up, someTime, float64(number)), sample(own, someTime, float64(number))}
}
