package downsample

import (
	"context"
	"fmt"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/series/rollup"
)

// What a maker waits for.
const (
	// waitClock is a clock in doubt: nothing is made or released.
	waitClock = "clock"
	// waitLogs are logs of other adapters with samples of days that are due: these are not released.
	waitLogs = "logs"
)

// waits are what a maker waits for. The state is in a metric, and a line of the log says when it changes.
type waits struct {
	logger log.Logger
	gauge  *prometheus.GaugeVec
	// reasons are the reasons that were logged.
	reasons map[string]string
}

func newWaits(f metricset.Set, logger log.Logger) waits {
	return waits{logger: logger, reasons: make(map[string]string), gauge: f.Gauges("adapter_rollup_waiting",
		"1 while rollups wait for clocks that agree (clock), or samples that may go for the logs of other adapters (logs).", "for", waitClock, waitLogs)}
}

// set says why the maker waits for something, or nil if it does not.
func (w *waits) set(what string, reason error) {
	text, value := "", 0.0
	if reason != nil {
		text, value = reason.Error(), 1
	}
	w.gauge.WithLabelValues(what).Set(value)
	switch before := w.reasons[what]; {
	case (before == "") == (text == "") && (what == waitClock || before == text): // how far a clock is off changes all the time
	case text == "":
		level.Info(w.logger).Log("msg", "rollups wait no longer", "for", what)
	default:
		level.Info(w.logger).Log("msg", "rollups wait", "for", what, "reason", text)
	}
	w.reasons[what] = text
}

// logsEnd returns the end of the last day up to to of which no log of another process has a sample, or gets one. Days up to to are closed.
func (m *Maker) logsEnd(ctx context.Context, to int64) (int64, error) {
	if m.cfg.Logs == nil {
		return to, nil
	}
	logs, err := m.cfg.Logs(ctx)
	if err != nil {
		return 0, err
	}
	var waitsFor error
	for _, l := range logs {
		if end := logEnd(l); end < to {
			to = end
			waitsFor = fmt.Errorf("log %s of %s on %s may have samples that are not in the store, up to %s", l.ID, l.Path, l.Host, dayText(end))
		}
	}
	m.waits.set(waitLogs, waitsFor)
	return to, nil
}

// logEnd returns the end of the last day of which a log has no sample that is not in the store, and gets none.
func logEnd(l meta.Log) int64 {
	closed := rollup.DayOf(l.Closed + 1)
	if l.Oldest == 0 {
		return closed
	}
	return min(closed, rollup.DayOf(l.Oldest))
}
