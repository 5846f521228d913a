package meta

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/promtable/promtable/series"
)

// imported is the cell of an import, as JSON.
type imported struct {
	Units []string `json:"units"`
}

// Imported returns which units of an import are stored, by its ID, as SetImported has written them.
func (s *Store) Imported(ctx context.Context, id string) (units []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key, err := s.importKey(id)
	if err != nil {
		return nil, err
	}
	c, err := ReadCell(ctx, s.rows, key)
	if err != nil || c.Value == nil {
		return nil, err
	}
	var found imported
	if err := json.Unmarshal(c.Value, &found); err != nil {
		return nil, fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, key, err)
	}
	return found.Units, nil
}

// SetImported writes which units of an import are stored. Of two processes the last one wins, so that the other's units are imported again.
func (s *Store) SetImported(ctx context.Context, id string, units []string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key, err := s.importKey(id)
	if err != nil {
		return err
	}
	value, err := json.Marshal(imported{units})
	if err != nil {
		return err
	}
	return Overwrite(ctx, s.rows, key, value, s.now().UnixMilli())
}

func (s *Store) importKey(id string) (string, error) {
	key, err := s.schema.AppendMetaKey(nil, series.MetaImport, id)
	return string(key), err
}
