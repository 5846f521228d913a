package fleet

import "github.com/promtable/promtable/index"

// Indexed notes that a series was written to the index, before a sample of it is acknowledged.
func (f *Fleet) Indexed(period int64, seriesKey []byte) {
	f.indexed.add(index.Learned{Period: period, Key: string(seriesKey)})
}
