package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/promtable/promtable/series"
)

// imported is the cell of an import, as JSON.
type imported struct {
	Parts []Part `json:"parts"`
}

// A Part is a part of an import that is stored: samples in [Start, Limit), in milliseconds.
type Part struct {
	ID    string `json:"id"`
	Start int64  `json:"start"`
	Limit int64  `json:"limit"`
}

func (p *Part) overlaps(start, limit int64) bool { return p.Start < limit && start < p.Limit }

// errChanged says that other processes change a row again and again.
var errChanged = errors.New("changed by other processes meanwhile")

// Imported returns the IDs of the parts of an import that are stored, as NoteImported has written them.
func (s *Store) Imported(ctx context.Context, id string) (parts []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key, err := s.importKey(id)
	if err != nil {
		return nil, err
	}
	_, found, err := ReadJSON[imported](ctx, s.rows, key)
	for _, p := range found.Parts {
		parts = append(parts, p.ID)
	}
	return parts, err
}

// NoteImported notes parts of an import that are stored, beside those that are noted. A part whose times a deletion covers that is not
// finished is not noted. Without parts it forgets all.
func (s *Store) NoteImported(ctx context.Context, id string, parts ...Part) error {
	deletions, err := s.Deletions(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key, err := s.importKey(id)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return Overwrite(ctx, s.rows, key, nil, s.now().UnixMilli())
	}
	return s.changeImport(ctx, key, func(noted []Part) []Part {
		for _, p := range parts {
			isDeleted := slices.ContainsFunc(deletions, func(d Deletion) bool { return d.Done == 0 && p.overlaps(d.Start, d.Limit) })
			if !isDeleted && !slices.Contains(noted, p) {
				noted = append(noted, p)
			}
		}
		return noted
	})
}

// ForgetImported removes the notes of parts with times in [start, limit), in milliseconds, of all imports: something of them is deleted.
func (s *Store) ForgetImported(ctx context.Context, start, limit int64) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	isDeleted := func(p Part) bool { return p.overlaps(start, limit) }
	var keys []string
	err := ScanCells(ctx, s.rows, s.schema.MetaRange(series.MetaImport), func(key []byte, _ Cell) error {
		keys = append(keys, string(key))
		return nil
	})
	for _, key := range keys {
		if err == nil {
			err = s.changeImport(ctx, key, func(noted []Part) []Part { return slices.DeleteFunc(noted, isDeleted) })
		}
	}
	if err != nil {
		return fmt.Errorf("forget what is imported: %w", err)
	}
	return nil
}

// changeImport changes the parts of a row, which other processes may change, too.
func (s *Store) changeImport(ctx context.Context, key string, change func(noted []Part) []Part) error {
	for range maxTries {
		old, found, err := ReadJSON[imported](ctx, s.rows, key)
		if err != nil {
			return err
		}
		before := len(found.Parts)
		if found.Parts = change(found.Parts); len(found.Parts) == before {
			return nil
		}
		value, err := json.Marshal(found)
		if err != nil {
			return err
		}
		if set, err := CompareAndSet(ctx, s.rows, key, old, s.newCell(value)); err != nil || set {
			return err
		}
	}
	return fmt.Errorf("row %q of META is %w", key, errChanged)
}

// maxTries is how often a row is read again that has changed.
const maxTries = 20

func (s *Store) importKey(id string) (string, error) {
	key, err := s.schema.AppendMetaKey(nil, series.MetaImport, id)
	return string(key), err
}
