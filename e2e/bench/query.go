package main

import (
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
)

// A selection is what one remote read asks for: samples in [mint, maxt], ms.
type selection struct {
	name       string
	matchers   []*labels.Matcher
	mint, maxt int64
}

// window is the shorter one of the ranges that are read: an hour, or half of a
// workload that has less than two.
func (w workload) window() time.Duration {
	return min(time.Hour, time.Duration(w.Samples)*w.Interval/2).Truncate(w.Interval)
}

// selections returns the remote reads of a workload.
func selections(w workload) []selection {
	match := func(kind labels.MatchType, name, value string) []*labels.Matcher {
		return []*labels.Matcher{labels.MustNewMatcher(kind, name, value)}
	}
	recent, window := w.End-w.window().Milliseconds(), short(w.window())
	span := short(time.Duration(w.Samples) * w.Interval)
	metric := match(labels.MatchEqual, "__name__", "node_cpu_seconds_total")
	return []selection{
		{"one metric, " + window, metric, recent, w.End},
		{"one metric, all of " + span, metric, w.begin() - w.Interval.Milliseconds(), w.End},
		{"one instance, " + window, match(labels.MatchEqual, "instance", instance(0, false)), recent, w.End},
		{"a regex, " + window, match(labels.MatchRegexp, "__name__", "node_(disk|network)_.+"), recent, w.End},
	}
}

// matches says whether a series is selected.
func (s selection) matches(ls labels.Labels) bool {
	for _, m := range s.matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// proto returns the selection as a remote read has it. The types of matchers have
// the same numbers there.
func (s selection) proto() *prompb.Query {
	q := &prompb.Query{StartTimestampMs: s.mint, EndTimestampMs: s.maxt}
	for _, m := range s.matchers {
		q.Matchers = append(q.Matchers, &prompb.LabelMatcher{Type: prompb.LabelMatcher_Type(m.Type), Name: m.Name, Value: m.Value})
	}
	return q
}

// A digest stands for a set of samples: equal sets have equal digests, in
// whatever order they are added, and others hardly ever.
type digest struct {
	Samples int
	Sum     uint64
}

func (d *digest) add(series uint64, t int64, v float64) {
	var b [24]byte
	for i, x := range [3]uint64{series, uint64(t), math.Float64bits(v)} {
		for j := range 8 {
			b[8*i+j] = byte(x >> (8 * j))
		}
	}
	d.Samples++
	d.Sum += xxhash.Sum64(b[:])
}

// expected returns what each selection of a workload has to give.
func expected(w workload, all []selection) []digest {
	g := newGenerator(w)
	digests := make([]digest, len(all))
	type member struct {
		series    int
		hash      uint64
		selection int
	}
	var members []member
	for i := range w.Series {
		ls := g.labels(i)
		for k, s := range all {
			if s.matches(ls) {
				members = append(members, member{i, ls.Hash(), k})
			}
		}
	}
	for g.scrape() {
		for _, m := range members {
			if t, s := g.T[m.series], all[m.selection]; t >= s.mint && t <= s.maxt {
				digests[m.selection].add(m.hash, t, g.V[m.series])
			}
		}
	}
	return digests
}

// An expression is a PromQL range query, from start to end, in ms.
type expression struct {
	name       string
	text       string
	start, end int64
	step       time.Duration
}

// expressions returns the PromQL queries of a workload. They end a minute before
// its last sample: VictoriaMetrics shows what is younger than 30 s only in part.
func expressions(w workload) []expression {
	start, end := w.End-w.window().Milliseconds(), w.End-time.Minute.Milliseconds()
	step := max(w.Interval, (w.window() / 60).Truncate(w.Interval))
	var list []expression
	for _, e := range [][2]string{
		{"a gauge of all hosts", `node_memory_MemAvailable_bytes`},
		{"rate of one instance", fmt.Sprintf(`rate(node_network_receive_bytes_total{instance=%q}[5m])`, instance(0, false))},
		{"sum of rates", `sum by (mode) (rate(node_cpu_seconds_total[5m]))`},
		{"quantile", `histogram_quantile(0.99, sum by (le, handler) (rate(http_request_duration_seconds_bucket[5m])))`},
	} {
		list = append(list, expression{e[0] + ", " + short(w.window()), e[1], start, end, step})
	}
	return list
}

// short prints a duration without parts that are zero.
func short(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return d.String()
}
