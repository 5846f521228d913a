package index

import (
	"context"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// A Learned is a series that another process has written to an index period.
type Learned struct {
	Period int64
	// Key is the series key, of the tenant of the Index.
	Key string
}

// Learn adds series that other processes have written to the lists in memory: calls that begin after it find them. The error is
// series.ErrCorrupt if a key cannot be parsed; the others are learnt.
func (x *Index) Learn(all []Learned) (err error) {
	var b labels.ScratchBuilder
	needs := make([]need, 0, len(all))
	for _, l := range all {
		ls, parseErr := x.schema.ParseSeriesKey([]byte(l.Key), &b)
		if parseErr != nil || l.Period != series.PeriodOf(l.Period) {
			err = fmt.Errorf("%w: another process has indexed %q in period %d: %v", series.ErrCorrupt, l.Key, l.Period, parseErr)
			continue
		}
		needs = append(needs, need{rowID: rowID{period: l.Period}, entry: &Entry{Key: []byte(l.Key), Labels: ls, T: l.Period}})
	}
	x.memory.addFound(needs)
	return err
}

// Forget drops what is in memory, because other processes may have written anything.
func (x *Index) Forget() { x.memory.drop() }

// synced calls Config.Sync.
func (x *Index) synced(ctx context.Context, limit int64) error {
	if x.sync == nil {
		return nil
	}
	err := x.sync(ctx, limit)
	x.memory.told.Store(err == nil && x.told != nil && x.told())
	return err
}
