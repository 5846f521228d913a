package pebble

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
)

// Usage returns what the store takes on the disk, as adapter_pebble_disk_bytes has it but for
// files that are about to be deleted and those of running compactions. Blocks
// count for each day that has a part of them, so small days are scaled to the whole.
func (s *Store) Usage() (u bucketstore.Usage, err error) {
	freeing := s.freeing.Load() // First: else it might be free by now.
	for _, l := range s.tables[bucketstore.Metric].layers {
		bytes, err := s.db.EstimateDiskUsage([]byte{l.first}, []byte{l.first + 1})
		if err != nil {
			return u, fmt.Errorf("size of a resolution: %w", err)
		}
		u.Resolutions[l.resolution()] += bytes
	}
	raw, sum := s.tables[bucketstore.Metric].layers[0], uint64(0)
	for _, day := range raw.days.all() {
		if day == noDay {
			continue
		}
		d := bucketstore.DayUsage{End: raw.end(day)}
		if d.Bytes, err = s.db.EstimateDiskUsage(appendHead(nil, raw.first, day), appendHeadLimit(nil, raw.first, day)); err != nil {
			return u, fmt.Errorf("size of a day: %w", err)
		}
		u.Days = append(u.Days, d)
		sum += d.Bytes
	}
	m := s.db.Metrics()
	tables := m.Table.Local
	u.Bytes = m.DiskSpaceUsage()
	u.Bytes -= min(u.Bytes, freeing+tables.ObsoleteSize+tables.ZombieSize+m.WAL.ObsoletePhysicalSize+uint64(m.Compact.InProgressBytes))
	for i := range u.Days {
		if sum > u.Bytes {
			u.Days[i].Bytes = uint64(float64(u.Days[i].Bytes) * float64(u.Bytes) / float64(sum))
		}
	}
	return u, nil
}
