package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/promtable/promtable/series"
)

// A Deletion is a record that samples are deleted: those in a range of time, of the series
// that match, that were written before it. Package deletion says what that means.
type Deletion struct {
	// ID is random.
	ID string `json:"-"`
	// Tenant is empty in a store without tenants.
	Tenant   string    `json:"tenant,omitempty"`
	Matchers []Matcher `json:"matchers"`
	// Start and Limit are the range, half-open, in milliseconds.
	Start int64 `json:"start"`
	Limit int64 `json:"limit"`
	// At is when it was asked for, by the clock of the adapter, in milliseconds.
	At int64 `json:"at"`
	// Stamp is that of the last write before it. Adapters that learn of it late raise it.
	Stamp int64 `json:"stamp"`
	// Done is when nothing was left to delete, in milliseconds. 0 is not yet.
	Done int64 `json:"done,omitempty"`

	// Passed are the stamps up to which logs hold nothing any more, by the IDs of the logs.
	Passed map[string]int64 `json:"-"`
	cell   Cell
}

// A Matcher is one of a selector.
type Matcher struct {
	Name string `json:"name"`
	// Type is =, !=, =~ or !~.
	Type  string `json:"type"`
	Value string `json:"value"`
}

// Deletions returns the deletions in META, ordered by ID.
func (s *Store) Deletions(ctx context.Context) (all []Deletion, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = ScanCells(ctx, s.rows, series.MetaDeleteRange(), func(key []byte, c Cell) (err error) {
		id, log := series.ParseMetaDeleteKey(key)
		n := len(all) - 1
		switch {
		case log == "":
			d := Deletion{ID: id, cell: c, Passed: make(map[string]int64)}
			err = json.Unmarshal(c.Value, &d)
			all = append(all, d)
		case n >= 0 && all[n].ID == id: // else it was written late, and the deletion is gone
			all[n].Passed[log], err = strconv.ParseInt(string(c.Value), 10, 64)
		}
		if err != nil {
			return fmt.Errorf("%w: row %q of META: %v", series.ErrCorrupt, key, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the deletions: %w", err)
	}
	return all, nil
}

// PutDeletion writes a deletion in place of what was read of it; a new one was not read. It
// returns false if the row has changed since. After an error it may be written or not. On
// success d is as if it was read.
func (s *Store) PutDeletion(ctx context.Context, d *Deletion) (put bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	value, err := json.Marshal(d)
	if err != nil {
		return false, err
	}
	next, put, err := CompareAndSet(ctx, s.rows, string(series.AppendMetaDeleteKey(nil, d.ID)), d.cell, value, s.now().UnixMilli())
	if err != nil {
		return false, fmt.Errorf("store a deletion: %w", err)
	}
	if put {
		d.cell = next
	}
	return put, nil
}

// RemoveDeletion removes a deletion, unless it has changed since it was read, and what logs
// have said of it.
func (s *Store) RemoveDeletion(ctx context.Context, d *Deletion) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := CompareAndDelete(ctx, s.rows, string(series.AppendMetaDeleteKey(nil, d.ID)), d.cell)
	for log := range d.Passed {
		if err == nil {
			err = Overwrite(ctx, s.rows, string(series.AppendMetaPassedKey(nil, d.ID, log)), nil, s.now().UnixMilli())
		}
	}
	if err != nil {
		return fmt.Errorf("remove a deletion: %w", err)
	}
	return nil
}

// PassDeletion notes that a log has nothing from before a deletion any more.
func (s *Store) PassDeletion(ctx context.Context, d *Deletion, log string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := string(series.AppendMetaPassedKey(nil, d.ID, log))
	if err := Overwrite(ctx, s.rows, key, strconv.AppendInt(nil, d.Stamp, 10), s.now().UnixMilli()); err != nil {
		return fmt.Errorf("note that a log has passed a deletion: %w", err)
	}
	return nil
}
