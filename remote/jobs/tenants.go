package jobs

import (
	"context"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// Tenants returns the schemas of the tenants of a store, in order of their names, or the one schema of a store without
// tenants. A tenant that takes samples was in META before the first of them, so a walk that asks when it begins misses none.
type Tenants func(ctx context.Context) ([]series.Schema, error)

// TenantsOf returns those of a store, as META has them whenever it is asked. schema is that of the store: of all tenants, of
// one of them, or without any.
func TenantsOf(about *meta.Store, schema series.Schema) Tenants {
	if !schema.Tenancy() || schema.Tenant() != "" {
		return NamedTenants(schema)
	}
	return func(ctx context.Context) (all []series.Schema, err error) {
		tenants, err := about.Tenants(ctx)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, t := range tenants {
			if t.InUse() {
				names = append(names, t.Name)
			}
		}
		if len(names) == 0 {
			return nil, nil
		}
		return NamedTenants(schema, names...)(ctx)
	}
}

// NamedTenants returns the tenants with these names, or schema itself if there are none.
func NamedTenants(schema series.Schema, names ...string) Tenants {
	return func(context.Context) (all []series.Schema, err error) {
		for _, name := range names {
			of, err := schema.ForTenant(name)
			if err != nil {
				return nil, err
			}
			all = append(all, of)
		}
		if len(names) == 0 {
			all = []series.Schema{schema}
		}
		return all, nil
	}
}
