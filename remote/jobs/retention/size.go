package retention

import (
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/rollup"
)

// sizeCut returns the end of the last of the oldest days that must go so that the store takes
// no more than Config.Size, in milliseconds, or 0 if none must. It is never in the last 3 days,
// nor in the newest 3 days with samples. What is before the horizon counts as gone.
func (r *Retention) sizeCut(usage bucketstore.Usage) (cut int64) {
	if r.cfg.Size == 0 {
		return 0
	}
	left, days := usage.Bytes, usage.Days
	for len(days) > 0 && days[0].End <= r.Horizon(rollup.Raw) {
		left, days = left-min(left, days[0].Bytes), days[1:]
	}
	limit := min(r.cfg.Now().Add(-MinRaw).UnixMilli(), Newest(days))
	for left > r.cfg.Size && len(days) > 0 && days[0].End <= limit {
		cut, left, days = days[0].End, left-min(left, days[0].Bytes), days[1:]
	}
	if left > r.cfg.Size {
		level.Warn(r.cfg.Logger).Log("msg", "the store exceeds --retention.size with its newest 3 days alone, which are kept", "bytes", left, "limit", r.cfg.Size)
	}
	return cut
}

// reportSize logs and counts the days of usage that the horizon of raw samples, raised from a time to another, cut for their size and not for their age.
func (r *Retention) reportSize(usage bucketstore.Usage, from, to int64, now time.Time) {
	from = max(from, r.Wanted(rollup.Raw, now))
	days := 0
	for _, day := range usage.Days {
		if from < day.End && day.End <= to {
			days++
		}
	}
	if days > 0 {
		r.sizeDays.Add(float64(days))
		level.Info(r.cfg.Logger).Log("msg", "the store exceeds --retention.size, its oldest days are deleted", "bytes", usage.Bytes, "limit", r.cfg.Size, "days", days, "until", time.UnixMilli(to).UTC().Format(time.RFC3339))
	}
}
