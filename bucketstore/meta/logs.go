package meta

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/promtable/promtable/series"
)

// A Log is a log that may hold samples which are not in the store yet. META lists it from
// before its first sample until all its samples are stored.
type Log struct {
	// ID names the log among all others.
	ID string `json:"-"`
	// Host is the machine on which the log was last open, Path its directory there.
	Host string `json:"host"`
	Path string `json:"path"`
	// InRows says that the files of the log are rows of the store. Another adapter may take it when its own has died.
	InRows bool `json:"in_rows,omitempty"`
	// Seen is when its adapter last updated this row, in milliseconds.
	Seen int64 `json:"seen"`
	// Taken is when another adapter that writes the samples of the log to the store last said so, in milliseconds. 0 is never.
	Taken int64 `json:"taken,omitempty"`
	// Bytes is the size of the log when it was last seen.
	Bytes int64 `json:"bytes"`
	// Closed is the time up to which, inclusive, its adapter acknowledges no sample any more, in milliseconds, and Oldest is at most the
	// time of its oldest sample that is not in the store, or 0 if there was none then. Both were true at one time, Closed before Oldest. So
	// a sample of a time up to Closed is not in the log, or not before Oldest. Closed is 0 until its adapter has
	// told both, such as during a start, and at least 1 then.
	Closed int64 `json:"closed,omitempty"`
	Oldest int64 `json:"oldest,omitempty"`
	// Address is where its adapter answers others, as the URL of a host and port, and Token the random name of its process. Both are empty if it does not.
	Address string `json:"address,omitempty"`
	Token   string `json:"token,omitempty"`
	// Promise is a time in milliseconds: the adapter has acknowledged no sample before it that is not in the store. It is lowered before
	// such a sample is acknowledged, so it holds whenever it is read. 0 promises nothing.
	Promise int64 `json:"promise,omitempty"`
	// Settings are those of its adapter in which all members have to agree, as text.
	Settings string `json:"settings,omitempty"`
}

// Promises says whether the log has no sample of a time up to t that is not in the store, by its promise.
func (l Log) Promises(t int64) bool { return l.Promise > t }

// IsPast says whether the log has no sample of a time up to t that is not in the store, as far as its row says.
func (l Log) IsPast(t int64) bool {
	if l.Closed == 0 { // not told
		return false
	}
	return l.Oldest == 0 || l.Oldest > t
}

// String describes l for messages.
func (l Log) String() string {
	return fmt.Sprintf("log %s of %s on %s, last seen %s, when it had %d bytes",
		l.ID, l.Path, l.Host, time.UnixMilli(l.Seen).UTC().Format(time.RFC3339), l.Bytes)
}

// Logs returns the logs in META, ordered by ID.
func (s *Store) Logs(ctx context.Context) (logs []Log, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err = ScanCells(ctx, s.rows, series.MetaLogRange(), func(key []byte, c Cell) error {
		var l Log
		err := ParseJSON(key, c.Value, &l)
		l.ID = series.ParseMetaLogKey(key)
		logs = append(logs, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the logs of the store: %w", err)
	}
	return logs, nil
}

// PutLog writes the row of a log.
func (s *Store) PutLog(ctx context.Context, l Log) error {
	value, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return s.overwriteLog(ctx, l.ID, value)
}

// ReadLog returns the row of a log, and its cell, which has no value if there is no such row.
func (s *Store) ReadLog(ctx context.Context, id string) (l Log, c Cell, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, l, err = ReadJSON[Log](ctx, s.rows, string(series.AppendMetaLogKey(nil, id)))
	if err != nil {
		return l, c, fmt.Errorf("read the row of log %s: %w", id, err)
	}
	l.ID = id
	return l, c, nil
}

// ReplaceLog writes the row of a log if its cell is still old, and returns the new cell, and whether it did. After an error the row
// may have either.
func (s *Store) ReplaceLog(ctx context.Context, old Cell, l Log) (next Cell, replaced bool, err error) {
	value, err := json.Marshal(l)
	if err != nil {
		return next, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	next = s.newCell(value)
	if replaced, err = CompareAndSet(ctx, s.rows, string(series.AppendMetaLogKey(nil, l.ID)), old, next); err != nil {
		err = fmt.Errorf("replace the row of log %s: %w", l.ID, err)
	}
	return next, replaced, err
}

// RemoveLog deletes the row of a log. A missing row is no error.
func (s *Store) RemoveLog(ctx context.Context, id string) error {
	return s.overwriteLog(ctx, id, nil)
}

// forgotten is the cell of META/forgotten,<id>, as JSON. At is in milliseconds.
type forgotten struct {
	At int64 `json:"at"`
}

// ForgetLog says for ever that a log was forgotten, and then deletes its row. So a start that finds the row missing finds that it was forgotten, too.
func (s *Store) ForgetLog(ctx context.Context, id string) error {
	value, err := json.Marshal(forgotten{s.now().UnixMilli()})
	if err == nil {
		err = s.put(ctx, series.AppendMetaForgottenKey(nil, id), value)
	}
	if err != nil {
		return fmt.Errorf("store that log %s is forgotten: %w", id, err)
	}
	return s.RemoveLog(ctx, id)
}

// IsForgotten says whether a log was forgotten.
func (s *Store) IsForgotten(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, f, err := ReadJSON[forgotten](ctx, s.rows, string(series.AppendMetaForgottenKey(nil, id)))
	if err != nil {
		return false, fmt.Errorf("read whether log %s is forgotten: %w", id, err)
	}
	return f.At > 0, nil
}

// logStamp is the cell of META/stamp,<id>, as JSON.
type logStamp struct {
	Stamp int64 `json:"stamp"`
}

// LogStamp returns the stamp that PutLogStamp has written of the log with this ID, or 0.
func (s *Store) LogStamp(ctx context.Context, id string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, l, err := ReadJSON[logStamp](ctx, s.rows, string(series.AppendMetaStampKey(nil, id)))
	if err != nil {
		return 0, fmt.Errorf("read the stamp of log %s: %w", id, err)
	}
	return l.Stamp, nil
}

// PutLogStamp notes that a request with this stamp, or a later one, is durable in the log with this ID, or was. The row stays when the log
// is removed, and so tells an older copy of it.
func (s *Store) PutLogStamp(ctx context.Context, id string, stamp int64) error {
	value, err := json.Marshal(logStamp{stamp})
	if err == nil {
		err = s.put(ctx, series.AppendMetaStampKey(nil, id), value)
	}
	if err != nil {
		return fmt.Errorf("store the stamp of log %s: %w", id, err)
	}
	return nil
}

// RemoveLogStamp removes what PutLogStamp has written of a log that no start finds again.
func (s *Store) RemoveLogStamp(ctx context.Context, id string) error {
	if err := s.put(ctx, series.AppendMetaStampKey(nil, id), nil); err != nil {
		return fmt.Errorf("remove the stamp of log %s: %w", id, err)
	}
	return nil
}

func (s *Store) overwriteLog(ctx context.Context, id string, value []byte) error {
	if err := s.put(ctx, series.AppendMetaLogKey(nil, id), value); err != nil {
		return fmt.Errorf("store the row of log %s: %w", id, err)
	}
	return nil
}

// put overwrites a row. Without a value it deletes it.
func (s *Store) put(ctx context.Context, key, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return Overwrite(ctx, s.rows, string(key), value, s.now().UnixMilli())
}
