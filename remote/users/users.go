// Package users says who may send which requests: the users of a file, each with roles and, in a store with tenants, with tenants.
//
//	users.go    a user, and the user of a request in its context
//	file.go     the file of users, read again on demand
//	handler.go  HTTP: whose a request is, and whether that user may send it
package users

import (
	"context"
	"slices"

	"github.com/promtable/promtable/remote/request"
)

// A Role is what a request needs, and what a user has.
type Role string

const (
	// None is what a request needs that all users may send.
	None Role = ""
	// Read is for what is stored, Write for samples.
	Read  Role = "read"
	Write Role = "write"
	// Admin is for requests of operators. Its users have all other roles.
	Admin Role = "admin"
)

// allTenants stands in a file for all tenants.
const allTenants = "*"

// A User may send requests. It does not change.
type User struct {
	Name string
	// Roles are those of the file, Tenants too: names, or * for all. There are none in a store without tenants.
	Roles   []Role
	Tenants []string
}

// Has says whether the user has a role.
func (u *User) Has(role Role) bool {
	return role == None || slices.Contains(u.Roles, role) || slices.Contains(u.Roles, Admin)
}

// AllTenants says whether the user may use every tenant.
func (u *User) AllTenants() bool { return slices.Contains(u.Tenants, allTenants) }

// MayUse says whether the user may use a tenant.
func (u *User) MayUse(tenant string) bool {
	return u.AllTenants() || slices.Contains(u.Tenants, tenant)
}

type key struct{}

// With returns a context of a request of a user.
func With(ctx context.Context, u *User) context.Context {
	return request.WithUser(context.WithValue(ctx, key{}, u), u.Name)
}

// Of returns the user of the request of a context, or nil.
func Of(ctx context.Context) *User {
	u, _ := ctx.Value(key{}).(*User)
	return u
}
