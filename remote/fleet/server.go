package fleet

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// A Source has the open chunks of this process: a *buffer.Buffer.
type Source interface {
	// ID names its log, and Token the process.
	ID() string
	Token() string
	// ScanOpen calls fn with the rows that are in memory, in order of keys.
	ScanOpen(rows []series.RowRange, chunks bucketstore.FamilyRange, fn func(bucketstore.Row) error) error
}

const (
	// maxRequest bounds a request, in bytes. It has the ranges of a batch.
	maxRequest = 256 << 20
	// partBytes is about the size of a part of an answer, and partSeries how many series it has at most.
	partBytes  = 256 << 10
	partSeries = 10_000
	// maxServed is how many requests are answered at once.
	maxServed = 32
)

// Serve returns what answers other members from a source. It knows nothing of who may ask.
func (f *Fleet) Serve(source Source) http.Handler {
	served := make(chan struct{}, maxServed)
	mux := http.NewServeMux()
	handle := func(path string, answer func(w http.ResponseWriter, r *http.Request)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			select {
			case served <- struct{}{}:
				defer func() { <-served }()
			case <-r.Context().Done():
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
			answer(w, r)
		})
	}
	handle(openPath, func(w http.ResponseWriter, r *http.Request) { f.answerOpen(w, r, source, source.ScanOpen) })
	handle(currentPath, func(w http.ResponseWriter, r *http.Request) { f.answerOpen(w, r, source, f.scanPending) })
	handle(indexedPath, func(w http.ResponseWriter, r *http.Request) { f.answerIndexed(w, r, source) })
	return mux
}

// decode reads a request. ok is false if it is answered already: it is none, or one for another process.
func (f *Fleet) decode(w http.ResponseWriter, r *http.Request, source Source, into any, of *target) (ok bool) {
	if err := gob.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, fmt.Sprintf("read the request: %v", err), http.StatusBadRequest)
		return false
	}
	if own := (target{Store: f.cfg.Meta.Identity(), Log: source.ID(), Token: source.Token()}); *of != own {
		http.Error(w, "the request is for another process", http.StatusConflict)
		return false
	}
	return true
}

// scanPending calls fn with the rows that are not in CURRENT yet, in order of keys.
func (f *Fleet) scanPending(rows []series.RowRange, _ bucketstore.FamilyRange, fn func(bucketstore.Row) error) error {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.pending))
	f.mu.Unlock()
	var found []bucketstore.Row
	for _, pending := range all { // of one tenant each, as their keys are
		found = append(found, pending(rows)...)
	}
	slices.SortFunc(found, func(a, b bucketstore.Row) int { return bytes.Compare(a.Key, b.Key) })
	for _, row := range found {
		if err := fn(row); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) answerOpen(w http.ResponseWriter, r *http.Request, source Source, scan func([]series.RowRange, bucketstore.FamilyRange, func(bucketstore.Row) error) error) {
	var req openRequest
	if !f.decode(w, r, source, &req, &req.Target) {
		return
	}
	e := gob.NewEncoder(w)
	var part openAnswer
	size := 0
	err := scan(req.Rows, req.Chunks, func(row bucketstore.Row) error {
		cells := slices.Clone(row.Cells)
		for i := range cells {
			if req.KeysOnly {
				cells[i].Value = nil
			}
			// The value may be memory that the next row uses again.
			cells[i].Value, cells[i].Qualifier = slices.Clone(cells[i].Value), slices.Clone(cells[i].Qualifier)
			size += len(cells[i].Value) + len(cells[i].Qualifier)
		}
		part.Rows = append(part.Rows, bucketstore.Row{Key: slices.Clone(row.Key), Cells: cells})
		if size += len(row.Key); size < partBytes {
			return nil
		}
		err := e.Encode(part)
		part, size = openAnswer{}, 0
		return err
	})
	if err == nil {
		part.End = true
		err = e.Encode(part)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // so that the answer does not look whole
	}
}

func (f *Fleet) answerIndexed(w http.ResponseWriter, r *http.Request, source Source) {
	var req indexedRequest
	if !f.decode(w, r, source, &req, &req.Target) {
		return
	}
	var all []index.Learned
	answer := indexedAnswer{Lost: true}
	var late []Late
	if req.IsKnown {
		var isLateLost bool
		all, answer.Next, answer.Lost = f.indexed.since(req.Since)
		late, answer.NextLate, isLateLost = f.late.since(req.SinceLate)
		answer.Lost = answer.Lost || isLateLost
	} else {
		_, answer.Next, _ = f.indexed.since(0)
		_, answer.NextLate, _ = f.late.since(0)
	}
	e := gob.NewEncoder(w)
	for some := range slices.Chunk(all, partSeries) {
		part := answer
		part.Series = some
		if e.Encode(part) != nil {
			panic(http.ErrAbortHandler)
		}
	}
	answer.Late, answer.End = late, true
	if e.Encode(answer) != nil {
		panic(http.ErrAbortHandler)
	}
}
