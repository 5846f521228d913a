package main

import (
	"github.com/promtable/promtable/remote/jobs"
)

// tenantSchemas returns the schemas of the tenants of the store, for jobs.
func (a *adapter) tenantSchemas() jobs.Tenants { return jobs.TenantsOf(a.meta, a.schema) }
