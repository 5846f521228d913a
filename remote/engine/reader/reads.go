package reader

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
)

// maxReads bounds the memory of the names that are known as read, in bytes, and readBytes is what one takes beside itself. Queries may name what
// there is not.
const (
	maxReads  = 32 << 20
	readBytes = 100
)

// reads is when metrics and labels were last read by queries for samples, since the start. The times are in milliseconds.
type reads struct {
	mu              sync.Mutex
	since           int64
	metrics, labels map[string]int64
	bytes           int
}

func newReads(now time.Time) *reads {
	return &reads{since: now.UnixMilli(), metrics: make(map[string]int64), labels: make(map[string]int64)}
}

// note notes a query, and what was found for it.
func (r *reads) note(now time.Time, q *Query, found *index.Result) {
	at := now.UnixMilli()
	metrics := metricsOf(q, found)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range metrics {
		r.noteName(r.metrics, name, at)
	}
	for _, m := range q.Matchers {
		if m.Name != labels.MetricName {
			r.noteName(r.labels, m.Name, at)
		}
	}
	for _, name := range q.Grouping {
		r.noteName(r.labels, name, at)
	}
}

// metricsOf returns the metric that a query names, or else those of the series that were found.
func metricsOf(q *Query, found *index.Result) (names []string) {
	for _, m := range q.Matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			names = append(names, m.Value)
		}
	}
	if len(names) > 0 {
		return names
	}
	for i := range found.Series { // in the order of their labels
		if name := found.Series[i].Labels.Get(labels.MetricName); len(names) == 0 || name != names[len(names)-1] {
			names = append(names, name)
		}
	}
	return names
}

// noteName notes a name, with mu held, if it is known or there is room for it.
func (r *reads) noteName(names map[string]int64, name string, at int64) {
	if _, ok := names[name]; !ok {
		if r.bytes += len(name) + readBytes; r.bytes > maxReads {
			r.bytes -= len(name) + readBytes
			return
		}
		name = strings.Clone(name) // it may be a part of a larger text
	}
	names[name] = at
}

// Unread returns those names of metrics, and of labels, that no query for samples has named since a time, or since the start of this process if that is
// later: from says which, in milliseconds. A metric is named by a selector that has it or finds a series of it, a label by a matcher or a grouping.
func (r *Reader) Unread(since time.Time, metrics, labels []string) (unreadMetrics, unreadLabels []string, from int64) {
	s := r.reads
	s.mu.Lock()
	defer s.mu.Unlock()
	from = max(since.UnixMilli(), s.since)
	unread := func(names []string, read map[string]int64) []string {
		found := []string{}
		for _, name := range names {
			if at, ok := read[name]; !ok || at < from {
				found = append(found, name)
			}
		}
		return found
	}
	return unread(metrics, s.metrics), unread(labels, s.labels), from
}
