package downsample

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// noteAge is how old a note must be for its day to be made again: as long as samples come, it is not.
const noteAge = 15 * time.Minute

// newNotes returns the notes of days that were written to after their rollups may have been made. What a crash
// leaves without a note is read as samples, until the day is walked for another reason.
func newNotes(cfg Config) *jobs.Notes {
	return &jobs.Notes{
		Store: cfg.Store, Now: cfg.Now, Value: func(int64) []byte { return []byte(rand.Text()) },
		Key: func(day int64) (string, error) { return string(series.AppendMetaLateKey(nil, day)), nil },
	}
}

// dayText returns the date of a day.
func dayText(day int64) string { return time.UnixMilli(day).UTC().Format(time.DateOnly) }

// notes returns the notes of days that have ended up to made, and are old enough.
func (d *Days) notes(ctx context.Context, made int64) ([]jobs.Note, error) {
	now := d.cfg.Now().UnixMilli()
	found, err := jobs.ReadNotes(ctx, d.cfg.Store, series.MetaLateRange(), series.ParseMetaLateKey)
	if err != nil {
		return nil, fmt.Errorf("days that were written to late: %w", err)
	}
	return slices.DeleteFunc(found, func(n jobs.Note) bool {
		age := time.Duration(now-n.Cell.Time) * time.Millisecond
		return n.T+rollup.Day > made || max(age, -age) < noteAge // a clock may have been far ahead
	}), nil
}
