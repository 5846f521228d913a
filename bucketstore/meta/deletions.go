package meta

import (
	"context"
	"encoding/json"
	"fmt"

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
	// Log is the ID of the log that was divided at Stamp when that was set. It is empty without a
	// buffer.
	Log string `json:"log,omitempty"`
	// Done is when nothing was left to delete, in milliseconds. 0 is not yet.
	Done int64 `json:"done,omitempty"`

	// Logs are what other logs, and also that one, have done since, by ID.
	Logs map[string]LogState `json:"-"`
	cell Cell
}

// A LogState says how far a log is with a deletion.
type LogState struct {
	// Stamp is that of the deletion at which the log was divided: no chunk that the deletion
	// covers has samples from both before and after.
	Stamp int64 `json:"stamp"`
	// Passed says that the log has nothing up to Stamp any more.
	Passed bool `json:"passed,omitempty"`
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
	err = ScanCells(ctx, s.rows, series.MetaDeleteRange(), func(key []byte, c Cell) error {
		id, log := series.ParseMetaDeleteKey(key)
		n := len(all) - 1
		switch {
		case log == "":
			d := Deletion{ID: id, cell: c, Logs: make(map[string]LogState)}
			all = append(all, d)
			return ParseJSON(key, c.Value, &all[n+1])
		case n >= 0 && all[n].ID == id: // else it was written late, and the deletion is gone
			var state LogState
			if err := ParseJSON(key, c.Value, &state); err != nil {
				return err
			}
			all[n].Logs[log] = state
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
	next := s.newCell(value)
	put, err = CompareAndSet(ctx, s.rows, string(series.AppendMetaDeleteKey(nil, d.ID)), d.cell, next)
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
	for log := range d.Logs {
		if err == nil {
			err = Overwrite(ctx, s.rows, string(series.AppendMetaDeleteLogKey(nil, d.ID, log)), nil, s.now().UnixMilli())
		}
	}
	if err != nil {
		return fmt.Errorf("remove a deletion: %w", err)
	}
	return nil
}

// NoteDeletion notes how far a log is with a deletion, whose Stamp it takes.
func (s *Store) NoteDeletion(ctx context.Context, d *Deletion, log string, passed bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	value, err := json.Marshal(LogState{d.Stamp, passed})
	if err == nil {
		err = Overwrite(ctx, s.rows, string(series.AppendMetaDeleteLogKey(nil, d.ID, log)), value, s.now().UnixMilli())
	}
	if err != nil {
		return fmt.Errorf("note how far log %s is with a deletion: %w", log, err)
	}
	return nil
}
