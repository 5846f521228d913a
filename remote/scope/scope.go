// Package scope says of which tenants a request is, and shares what is scarce among tenants.
//
//	scope.go      the tenants of a request, in its context
//	semaphore.go  a semaphore with turns by tenant
package scope

import (
	"context"
	"strings"
)

type key struct{}

// With returns a context of a request of these tenants, one at least. They are sorted, each once.
func With(ctx context.Context, tenants []string) context.Context {
	return context.WithValue(ctx, key{}, tenants)
}

// Tenants returns the tenants of a context, which are none in a store without tenants.
func Tenants(ctx context.Context) []string {
	tenants, _ := ctx.Value(key{}).([]string)
	return tenants
}

// Of names the tenants of a context, with | between them, for what is kept apart for each. It is empty without tenants.
func Of(ctx context.Context) string { return strings.Join(Tenants(ctx), "|") }

// payer names the tenant whose share a request takes: the first of several.
func payer(ctx context.Context) string {
	if tenants := Tenants(ctx); len(tenants) > 0 {
		return tenants[0]
	}
	return ""
}
