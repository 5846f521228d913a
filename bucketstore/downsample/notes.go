package downsample

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// noteInterval is how often notes are written.
	noteInterval = time.Minute
	// noteAge is how old a note must be for its day to be made again: as long as samples come, it is not.
	noteAge = 15 * time.Minute
)

// noteLate notes days that were written to after their rollups may have been made, in the next writeNotes. What a crash
// leaves without a note is read as samples, until the day is walked for another reason.
func (d *Days) noteLate(days []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, day := range days {
		d.late[day] = true
	}
}

// writeNotes writes a note of each day, with a random value, so that a maker removes none that was written after it has begun.
func (d *Days) writeNotes(ctx context.Context) error {
	d.mu.Lock()
	days := d.late
	d.late = make(map[int64]bool)
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	for day := range days {
		err := meta.Overwrite(ctx, d.cfg.Store, string(series.AppendMetaLateKey(nil, day)), []byte(rand.Text()), d.cfg.Now().UnixMilli())
		if err != nil {
			for day := range days {
				d.noteLate([]int64{day})
			}
			return fmt.Errorf("note the day %s: %w", dayText(day), err)
		}
	}
	return nil
}

// dayText returns the date of a day.
func dayText(day int64) string { return time.UnixMilli(day).UTC().Format(time.DateOnly) }

// A note says that a day was written to late.
type note struct {
	day  int64
	key  string
	cell meta.Cell
}

// notes returns the notes of days that have ended up to made, and are old enough.
func (d *Days) notes(ctx context.Context, made int64) (found []note, err error) {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	now := d.cfg.Now().UnixMilli()
	err = meta.ScanCells(ctx, d.cfg.Store, series.MetaLateRange(), func(key []byte, c meta.Cell) error {
		day, err := series.ParseMetaLateKey(key)
		if err != nil {
			return err
		}
		age := time.Duration(now-c.Time) * time.Millisecond
		if day+rollup.Day <= made && max(age, -age) >= noteAge { // a clock may have been far ahead
			found = append(found, note{day, string(key), c})
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read the notes of late days: %w", err)
	}
	return found, err
}

// remove removes a note, unless it was written again.
func (d *Days) remove(ctx context.Context, n note) error {
	ctx, cancel := context.WithTimeout(ctx, metaTimeout)
	defer cancel()
	_, err := meta.CompareAndDelete(ctx, d.cfg.Store, n.key, n.cell)
	return err
}
