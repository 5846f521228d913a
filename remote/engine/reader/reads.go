package reader

import (
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/index"
)

// maxReads bounds the names that are known as read, of metrics and of labels: they take some 100 bytes each.
const maxReads = 200_000

// reads is when metrics and labels were last read by queries for samples, since the start. The times are in milliseconds.
type reads struct {
	mu              sync.Mutex
	since           int64
	metrics, labels map[string]int64
}

func newReads(now time.Time) *reads {
	return &reads{since: now.UnixMilli(), metrics: make(map[string]int64), labels: make(map[string]int64)}
}

// note notes a query, and what was found for it.
func (r *reads) note(now time.Time, q *Query, found *index.Result) {
	at := now.UnixMilli()
	isNamed := false
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range q.Matchers {
		if m.Name != labels.MetricName {
			note(r.labels, m.Name, at)
		} else if m.Type == labels.MatchEqual {
			isNamed = true
			note(r.metrics, m.Value, at)
		}
	}
	for _, name := range q.Grouping {
		note(r.labels, name, at)
	}
	if isNamed {
		return
	}
	last := ""
	for i := range found.Series { // in the order of their labels
		if name := found.Series[i].Labels.Get(labels.MetricName); name != last {
			note(r.metrics, name, at)
			last = name
		}
	}
}

func note(names map[string]int64, name string, at int64) {
	if _, ok := names[name]; ok || len(names) < maxReads {
		names[name] = at
	}
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
