// Package tenancy gives each tenant of a store an engine of its own, and each request those of its tenants.
//
//	tenancy.go  what of the tenants of a request is allowed
//	engines.go  the engines of the tenants of a store, opened when they are first asked for
//	backend.go  what handlers ask of an engine, passed on to that of the tenants of the context
//	merged.go   several tenants asked at once
//	label.go    a write whose series name their tenants
//	handler.go  HTTP: which tenants a request is of
//
// A context without tenants finds nothing and stores nothing: each call fails then.
package tenancy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/series"
)

// maxTenants bounds the tenants of a request.
const maxTenants = 100

// errNone says that a context has no tenant. No request comes so far.
var errNone = errors.New("tenancy: a request without a tenant")

// tenantsIn returns the tenants of a context.
func tenantsIn(ctx context.Context) ([]string, error) {
	tenants := scope.Tenants(ctx)
	if len(tenants) == 0 {
		return nil, errNone
	}
	return tenants, nil
}

// one returns the tenant of a request that may have only one.
func one(ctx context.Context) (string, error) {
	tenants, err := tenantsIn(ctx)
	if err == nil && len(tenants) > 1 {
		err = request.WithStatus(http.StatusUnprocessableEntity, "this can be asked of one tenant at a time, not of %s", strings.Join(tenants, "|"))
	}
	if err != nil {
		return "", err
	}
	return tenants[0], nil
}

// Parse reads the names of tenants that a client gives: one, or several with | between, as Mimir has them. They come back sorted, each
// once. The error is a 400 that names the offender.
func Parse(text string) ([]string, error) {
	names := strings.Split(text, "|")
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxTenants {
		return nil, request.BadRequest("%d tenants are named, the limit is %d", len(names), maxTenants)
	}
	for _, name := range names {
		if err := series.CheckTenant(name); err != nil {
			return nil, request.BadRequest("%w", err)
		}
	}
	return names, nil
}
