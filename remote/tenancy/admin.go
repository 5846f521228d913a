package tenancy

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs/drop"
	"github.com/promtable/promtable/remote/request"
)

// AdminPath is where operators list, make and drop tenants.
const AdminPath = "/api/v1/admin/tenants"

// adminTimeout bounds a request of an operator.
const adminTimeout = time.Minute

// silence is for how long nothing may have been written to a tenant before it is dropped.
const silence = 5 * time.Minute

// Drop drops a tenant for an operator that by names: it is hidden at once, and a drop.Remover removes its rows. The error is a 422 if this
// process has taken samples of it a short time ago: whoever sends them should be stopped first.
func (t *Engines) Drop(ctx context.Context, name, by string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.read(ctx); err != nil {
		return err
	}
	if of, ok := t.known[name]; !ok {
		return request.WithStatus(http.StatusNotFound, "there is no tenant %s", request.Abbreviate(name))
	} else if !of.InUse() {
		return nil
	}
	if at, ok := t.written[name]; ok && t.cfg.Now().Sub(at) < silence {
		return request.WithStatus(http.StatusUnprocessableEntity, "the tenant %s was written to at %s: stop its senders, and try again after %s without a sample",
			name, at.UTC().Format(time.RFC3339), silence)
	}
	if err := drop.Mark(ctx, t.cfg.Meta, t.cfg.Now(), name, by); err != nil {
		return err
	}
	return t.read(ctx)
}

// Retire ends what the engine of a dropped tenant writes by itself. None of its writes may be running any more.
func (t *Engines) Retire(ctx context.Context, name string) error {
	t.mu.Lock()
	e := t.open[name]
	t.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.Retire(ctx)
}

// An admin serves AdminPath.
type admin struct {
	t      *Engines
	errors *request.Responder
}

// Admin serves, as JSON with times in milliseconds,
//
//	GET     AdminPath         all tenants, and what was removed of those that were dropped
//	POST    AdminPath/{name}  makes a tenant, unless it is there
//	DELETE  AdminPath/{name}  drops it
func (t *Engines) Admin(errors *request.Responder) http.Handler {
	a := &admin{t, errors}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+AdminPath, a.list)
	mux.HandleFunc("POST "+AdminPath+"/{name}", a.change(func(ctx context.Context, name, _ string) error { return t.Create(ctx, name) }))
	mux.HandleFunc("DELETE "+AdminPath+"/{name}", a.change(t.Drop))
	return mux
}

// AdminPatterns returns what Admin serves, as patterns of http.ServeMux.
func AdminPatterns() []string {
	return []string{"GET " + AdminPath, "POST " + AdminPath + "/{name}", "DELETE " + AdminPath + "/{name}"}
}

// A Listed is a tenant in the answer to a list.
type Listed struct {
	Name     string           `json:"name"`
	State    string           `json:"state"`
	Created  int64            `json:"created"`
	Dropping int64            `json:"dropping,omitempty"`
	Dropped  int64            `json:"dropped,omitempty"`
	By       string           `json:"by,omitempty"`
	Removed  map[string]int64 `json:"removed,omitempty"`
}

// Describe returns a tenant as it is listed.
func Describe(t meta.Tenant) Listed {
	state := "in use"
	switch {
	case t.Dropped > 0:
		state = "dropped"
	case t.Dropping > 0:
		state = "dropping"
	}
	return Listed{t.Name, state, t.Created, t.Dropping, t.Dropped, t.By, t.Removed}
}

// listed returns the tenants as they are listed, those included that were dropped.
func (t *Engines) listed(ctx context.Context) ([]Listed, error) {
	all, err := t.List(ctx)
	list := make([]Listed, len(all))
	for i := range all {
		list[i] = Describe(all[i])
	}
	return list, err
}

func (a *admin) list(w http.ResponseWriter, r *http.Request) {
	ctx, end := request.Begin(w, r, adminTimeout)
	defer end()
	list, err := a.t.listed(ctx)
	if err != nil {
		a.errors.Fail(w, r, err)
		return
	}
	a.answer(w, list)
}

// change serves a request that changes a tenant.
func (a *admin) change(do func(ctx context.Context, name, by string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, end := request.Begin(w, r, adminTimeout)
		defer end()
		client, name := request.ClientOf(r), r.PathValue("name")
		by := client.User
		if by == "" {
			by = client.Address
		}
		request.Note(ctx, "tenant", name)
		if err := do(ctx, name, by); err != nil {
			request.Note(ctx, "err", request.ErrorText(err))
			a.errors.Fail(w, r, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (a *admin) answer(w http.ResponseWriter, list []Listed) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": list}) // the client has hung up
}
