package tenancy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

const (
	// refreshInterval is after what time META is read again: until then a tenant that another process drops is served.
	refreshInterval = 10 * time.Second
	// missInterval is the least time between two reads of META for names that are not known.
	missInterval = time.Second
)

// Config says what Engines are made of. All of it is required.
type Config struct {
	// Meta has the tenants, Schema is that of all of them.
	Meta   *meta.Store
	Schema series.Schema
	Now    func() time.Time
	// Open opens the engine of a tenant, with its schema.
	Open func(series.Schema) (*engine.Engine, error)
	// Create says that a write makes the tenant that it names.
	Create bool
}

// Engines are the engines of the tenants of a store. They are safe for concurrent use.
type Engines struct {
	cfg Config

	mu sync.Mutex
	// known are the tenants in META at readAt, by name.
	known  map[string]meta.Tenant
	readAt time.Time
	open   map[string]*engine.Engine
	// written is when this process was last asked to write to a tenant.
	written map[string]time.Time
	closed  bool
}

// Open reads which tenants there are.
func Open(ctx context.Context, cfg Config) (*Engines, error) {
	t := &Engines{cfg: cfg, open: make(map[string]*engine.Engine), written: make(map[string]time.Time)}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t, t.read(ctx)
}

// read reads META, with mu held.
func (t *Engines) read(ctx context.Context) error {
	at := t.cfg.Now()
	all, err := t.cfg.Meta.Tenants(ctx)
	if err != nil {
		return err
	}
	t.known, t.readAt = make(map[string]meta.Tenant, len(all)), at
	for _, of := range all {
		t.known[of.Name] = of
	}
	return nil
}

// age returns how old what is known is, with mu held.
func (t *Engines) age() time.Duration { return bucketstore.Elapsed(t.readAt, t.cfg.Now()) }

// find returns a tenant as META has it, read again if that is old. A tenant that is not there has no name.
func (t *Engines) find(ctx context.Context, name string) (meta.Tenant, error) {
	of, ok := t.known[name]
	isOld := t.cfg.Meta.Traits().Shared && t.age() >= refreshInterval
	if !isOld && (ok || t.age() < missInterval) {
		return of, nil
	}
	err := t.read(ctx)
	return t.known[name], err
}

// List returns the tenants, dropped ones too, sorted by name.
func (t *Engines) List(ctx context.Context) ([]meta.Tenant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.read(ctx); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(t.known), func(a, b meta.Tenant) int { return cmp.Compare(a.Name, b.Name) }), nil
}

// Names returns the names of the tenants that are there, and not dropped, sorted.
func (t *Engines) Names(ctx context.Context) (names []string, err error) {
	all, err := t.List(ctx)
	for _, of := range all {
		if of.InUse() {
			names = append(names, of.Name)
		}
	}
	return names, err
}

// Exists says whether a tenant is there, and not dropped.
func (t *Engines) Exists(ctx context.Context, name string) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of, err := t.find(ctx, name)
	return of.Name != "" && of.InUse(), err
}

// nobody is a tenant that cannot be named, and has nothing.
const nobody = ","

// Engine returns the engine of a tenant. The error is a 403 if there is none, or if it is dropped. With Config.Create a tenant
// that is not there is one that has nothing.
func (t *Engines) Engine(ctx context.Context, name string) (*engine.Engine, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of, err := t.find(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case of.Name == "" && t.cfg.Create:
		return t.openEngine(nobody)
	case of.Name == "":
		return nil, request.WithStatus(http.StatusForbidden, "there is no tenant %s", name)
	case !of.InUse():
		return nil, request.WithStatus(http.StatusForbidden, "the tenant %s was dropped", name)
	}
	return t.openEngine(name)
}

// openEngine returns the engine of a tenant that there is, with mu held.
func (t *Engines) openEngine(name string) (*engine.Engine, error) {
	if e := t.open[name]; e != nil {
		return e, nil
	}
	if t.closed {
		return nil, errors.New("the adapter stops")
	}
	schema, err := t.cfg.Schema.ForTenant(name)
	if err != nil {
		return nil, err
	}
	e, err := t.cfg.Open(schema)
	if err != nil {
		return nil, fmt.Errorf("open the tenant %s: %w", name, err)
	}
	t.open[name] = e
	return e, nil
}

// Writer returns what stores the samples of the request of a context. It makes the tenant first if Config.Create says so.
func (t *Engines) Writer(ctx context.Context) (*engine.Engine, error) {
	name, err := one(ctx)
	if err != nil {
		return nil, err
	}
	if t.cfg.Create {
		if exists, err := t.Exists(ctx, name); err != nil {
			return nil, err
		} else if !exists {
			if err := t.Create(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	e, err := t.Engine(ctx, name)
	if err == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.written[name] = t.cfg.Now()
	}
	return e, err
}

// Create makes a tenant. One that is there stays as it is; the error is a 403 if it was dropped.
func (t *Engines) Create(ctx context.Context, name string) error {
	if err := series.CheckTenant(name); err != nil {
		return request.BadRequest("%w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.read(ctx); err != nil {
		return err
	}
	if of, ok := t.known[name]; ok {
		if !of.InUse() {
			return request.WithStatus(http.StatusForbidden, "the tenant %s was dropped", name)
		}
		return nil
	}
	made := meta.Tenant{Name: name, Created: t.cfg.Now().UnixMilli()}
	if _, err := t.cfg.Meta.PutTenant(ctx, &made); err != nil { // not put: another process has made it
		return err
	}
	return t.read(ctx)
}

// Opened returns the engines that are open.
func (t *Engines) Opened() []*engine.Engine {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.open))
}

// Close closes the engines. No other call may be running; those that follow fail.
func (t *Engines) Close(ctx context.Context) (err error) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	for _, e := range t.Opened() {
		err = errors.Join(err, e.Close(ctx))
	}
	return err
}

// FlushCurrent writes the current samples that wait in memory to CURRENT, of all tenants.
func (t *Engines) FlushCurrent(ctx context.Context) (err error) {
	for _, e := range t.Opened() {
		err = errors.Join(err, e.FlushCurrent(ctx))
	}
	return err
}
