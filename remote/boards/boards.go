// Package boards keeps the boards of the page: several graphs and tables of queries beside each other, as JSON by their names, of each tenant.
//
//	board.go   what a board has, and its bounds
//	boards.go  the requests that list, read, save and delete boards
//
// A board is a row [tenant,]board,NAME of META. Its version is the SHA-256 of its JSON, in hexadecimal digits.
package boards

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/series"
)

const (
	path = "/api/v1/boards"
	// timeout bounds a request.
	timeout = 30 * time.Second
	// maxBoards is how many a tenant has at most.
	maxBoards = 1000
)

// Config says where boards are. All but ReadOnly is required.
type Config struct {
	Store  bucketstore.Store
	Schema series.Schema
	Now    func() time.Time
	// ReadOnly refuses changes.
	ReadOnly bool
}

// Patterns returns the requests that read boards, as patterns of http.ServeMux.
func Patterns() []string { return []string{"GET " + path, "GET " + path + "/{name}"} }

// WritePatterns returns the requests that change them.
func WritePatterns() []string {
	return []string{"PUT " + path + "/{name}", "DELETE " + path + "/{name}"}
}

// Handler answers the requests of Patterns and WritePatterns in the envelope of Prometheus' API. A board that is read or saved has its version as ETag. PUT and DELETE with the header
// If-Match change only that version, PUT with If-None-Match: * makes only a new board; both answer 412 otherwise.
func Handler(cfg Config) http.Handler {
	h := &handler{cfg}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(context.Context, http.ResponseWriter, *http.Request) (any, error){
		"GET " + path:                h.list,
		"GET " + path + "/{name}":    h.get,
		"PUT " + path + "/{name}":    h.put,
		"DELETE " + path + "/{name}": h.remove,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, end := request.Begin(w, r, timeout)
			defer end()
			data, err := serve(ctx, w, r)
			if err != nil {
				fail(w, r, err)
				return
			}
			answer(w, http.StatusOK, map[string]any{"status": "success", "data": data})
		})
	}
	return mux
}

type handler struct{ cfg Config }

func answer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}

func fail(w http.ResponseWriter, r *http.Request, err error) {
	status := request.Status(r.Context(), request.API, err)
	answer(w, status, map[string]any{"status": "error", "errorType": "boards", "error": err.Error()})
}

// schema returns the schema of the tenant of a request.
func (h *handler) schema(ctx context.Context) (series.Schema, error) {
	switch tenants := scope.Tenants(ctx); len(tenants) {
	case 0:
		return h.cfg.Schema, nil
	case 1:
		return h.cfg.Schema.ForTenant(tenants[0])
	}
	return series.Schema{}, request.BadRequest("boards are of one tenant: ask for one")
}

// row returns the key of the board that a request names, and its cell.
func (h *handler) row(ctx context.Context, r *http.Request) (name, key string, c meta.Cell, err error) {
	name = r.PathValue("name")
	if err := checkName(name); err != nil {
		return "", "", c, request.BadRequest("%w", err)
	}
	schema, err := h.schema(ctx)
	if err != nil {
		return "", "", c, err
	}
	text, err := schema.AppendMetaKey(nil, series.MetaBoard, name)
	if err != nil {
		return "", "", c, request.BadRequest("%w", err)
	}
	c, err = meta.ReadCell(ctx, h.cfg.Store, string(text))
	return name, string(text), c, err
}

func version(c meta.Cell) string {
	sum := sha256.Sum256(c.Value)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// A Listed is a board in a list.
type Listed struct {
	Name   string `json:"name"`
	Title  string `json:"title"`
	Panels int    `json:"panels"`
	// Saved is when it was saved, in seconds since 1970.
	Saved float64 `json:"saved"`
}

// A list is the answer to a request for all boards.
type list struct {
	Boards   []Listed `json:"boards"`
	ReadOnly bool     `json:"readOnly"`
}

func (h *handler) list(ctx context.Context, _ http.ResponseWriter, _ *http.Request) (any, error) {
	schema, err := h.schema(ctx)
	if err != nil {
		return nil, err
	}
	all := list{Boards: []Listed{}, ReadOnly: h.cfg.ReadOnly}
	err = meta.ScanCells(ctx, h.cfg.Store, schema.MetaRange(series.MetaBoard), func(key []byte, c meta.Cell) error {
		_, name, err := schema.ParseMetaKey(key)
		if err != nil {
			return err
		}
		var b Board // which may be of a later version, that has more
		if err := meta.ParseJSON(key, c.Value, &b); err != nil {
			return err
		}
		all.Boards = append(all.Boards, Listed{name, b.Title, len(b.Panels), float64(c.Time) / 1000})
		return nil
	})
	return all, err
}

func (h *handler) get(ctx context.Context, w http.ResponseWriter, r *http.Request) (any, error) {
	name, _, c, err := h.row(ctx, r)
	if err != nil {
		return nil, err
	}
	if c.Value == nil {
		return nil, request.WithStatus(http.StatusNotFound, "there is no board %q", name)
	}
	w.Header().Set("ETag", version(c))
	return json.RawMessage(c.Value), nil
}

// errReadOnly is a 403.
var errReadOnly = request.WithStatus(http.StatusForbidden, "boards are not changed here: --web.read-only-boards, or --mode=read")

// changeable returns the row of the board that a request may change, and what it is now.
func (h *handler) changeable(ctx context.Context, r *http.Request) (key string, old meta.Cell, err error) {
	if h.cfg.ReadOnly {
		return "", old, errReadOnly
	}
	name, key, old, err := h.row(ctx, r)
	if err != nil {
		return "", old, err
	}
	match, isNew := r.Header.Get("If-Match"), r.Header.Get("If-None-Match") == "*"
	switch {
	case isNew && old.Value != nil:
		return "", old, request.WithStatus(http.StatusPreconditionFailed, "there is a board %q already", name)
	case match != "" && (old.Value == nil || match != "*" && match != version(old)):
		return "", old, changed(name)
	}
	return key, old, nil
}

func changed(name string) error {
	return request.WithStatus(http.StatusPreconditionFailed, "the board %q was changed or deleted meanwhile: load it again", name)
}

func (h *handler) put(ctx context.Context, w http.ResponseWriter, r *http.Request) (any, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBytes))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, request.WithStatus(http.StatusRequestEntityTooLarge, "a board has at most %d bytes of JSON", MaxBytes)
	}
	if err != nil {
		return nil, request.BadRequest("read the board: %w", err)
	}
	b, err := parse(text)
	if err != nil {
		return nil, request.BadRequest("%w", err)
	}
	key, old, err := h.changeable(ctx, r)
	if err != nil {
		return nil, err
	}
	if old.Value == nil {
		if err := h.checkRoom(ctx); err != nil {
			return nil, err
		}
	}
	next := meta.Cell{Time: h.cfg.Now().UnixMilli()}
	if next.Value, err = json.Marshal(&b); err != nil {
		return nil, err
	}
	if len(next.Value) > MaxBytes { // escapes may take more
		return nil, request.WithStatus(http.StatusRequestEntityTooLarge, "a board has at most %d bytes of JSON", MaxBytes)
	}
	set, err := meta.CompareAndSet(ctx, h.cfg.Store, key, old, next)
	if err == nil && !set {
		err = changed(r.PathValue("name"))
	}
	if err != nil {
		return nil, err
	}
	w.Header().Set("ETag", version(next))
	return nil, nil
}

// checkRoom returns an error if the tenant has as many boards as it may have.
func (h *handler) checkRoom(ctx context.Context) error {
	schema, err := h.schema(ctx)
	if err != nil {
		return err
	}
	n := 0
	err = meta.ScanCells(ctx, h.cfg.Store, schema.MetaRange(series.MetaBoard), func([]byte, meta.Cell) error {
		n++
		return nil
	})
	if err == nil && n >= maxBoards {
		err = request.WithStatus(http.StatusUnprocessableEntity, "there are %d boards, and more are not kept: delete one", n)
	}
	return err
}

func (h *handler) remove(ctx context.Context, _ http.ResponseWriter, r *http.Request) (any, error) {
	key, old, err := h.changeable(ctx, r)
	if err != nil {
		return nil, err
	}
	if old.Value == nil {
		return nil, request.WithStatus(http.StatusNotFound, "there is no board %q", r.PathValue("name"))
	}
	deleted, err := meta.CompareAndDelete(ctx, h.cfg.Store, key, old)
	if err == nil && !deleted {
		err = changed(r.PathValue("name"))
	}
	return nil, err
}
