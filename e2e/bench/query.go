package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// A selection is what one remote read asks for.
type selection struct {
	name string
	harness.Query
}

// window is the shorter one of the ranges that are read: an hour, or half of a
// workload that has less than two.
func (w workload) window() time.Duration {
	return min(time.Hour, time.Duration(w.Samples)*w.Interval/2).Truncate(w.Interval)
}

// drawn is how many reads of each kind there are.
const drawn = 8

// selections returns the remote reads of a workload, drawn of each kind. Those of a kind have
// one name. They are at random times of the whole span.
func selections(w workload) []selection {
	equal := func(name, value string) []*labels.Matcher {
		return []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, name, value)}
	}
	d := w.drawer()
	window, whole := short(w.window()), short(time.Duration(w.Samples)*w.Interval)
	metric := equal("__name__", "node_cpu_seconds_total")
	regex := []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, "__name__", "node_(disk|network)_.+")}
	var all []selection
	for range drawn {
		mint := w.begin() + d.Int64N(w.End-w.window().Milliseconds()-w.begin()+1)
		maxt := mint + w.window().Milliseconds()
		one := append(equal("__name__", "node_cpu_seconds_total"), equal("instance", d.instance(false))[0],
			equal("cpu", fmt.Sprint(d.IntN(8)))[0], equal("mode", d.of("idle", "system", "user"))[0])
		all = append(all,
			selection{"one metric, " + window, harness.Query{Mint: mint, Maxt: maxt, Matchers: metric}},
			selection{"one metric, all of " + whole, harness.Query{Mint: w.begin() - w.Interval.Milliseconds(), Maxt: w.End, Matchers: metric}},
			selection{"one series, all of " + whole, harness.Query{Mint: w.begin() - w.Interval.Milliseconds(), Maxt: w.End, Matchers: one}},
			selection{"one instance, " + window, harness.Query{Mint: mint, Maxt: maxt, Matchers: equal("instance", d.instance(false))}},
			selection{"a regex, " + window, harness.Query{Mint: mint, Maxt: maxt, Matchers: regex}},
		)
	}
	return all
}

// matches says whether a series is selected.
func (s selection) matches(ls labels.Labels) bool {
	for _, m := range s.Matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// A digest stands for a set of samples: equal sets have equal digests, in
// whatever order they are added, and others hardly ever.
type digest struct {
	Samples int
	Sum     uint64
}

func (d *digest) add(series uint64, t int64, bits uint64) {
	var b [24]byte
	for i, x := range [3]uint64{series, uint64(t), bits} {
		for j := range 8 {
			b[8*i+j] = byte(x >> (8 * j))
		}
	}
	d.Samples++
	d.Sum += xxhash.Sum64(b[:])
}

// and returns the digest of two sets.
func (d digest) and(other digest) digest {
	return digest{d.Samples + other.Samples, d.Sum + other.Sum}
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
			if t, s := g.T[m.series], all[m.selection]; t >= s.Mint && t <= s.Maxt {
				digests[m.selection].add(m.hash, t, math.Float64bits(g.V[m.series]))
			}
		}
	}
	return digests
}

// An expression is a PromQL range query over a span, at random times and of random series,
// drawn anew each time: what was read a moment ago says little about the next one.
type expression struct {
	name     string
	workload workload
	span     time.Duration
	// text writes the query.
	text func(d *drawer) string
	// step is that of the query; 0 is a 120th of the span.
	step time.Duration
	// atOnce is how many of it are asked at once. More than one is asked for its memory.
	atOnce int
}

// A drawer draws what a query asks for.
type drawer struct {
	*rand.Rand
	hosts int
}

// drawer returns one that draws the same each time it is made.
func (w workload) drawer() *drawer {
	return &drawer{rand.New(rand.NewPCG(w.Seed, 0)), max(1, w.Series/len(w.shapes()))}
}

// instance returns the instance of a host.
func (d *drawer) instance(app bool) string { return instance(d.IntN(d.hosts), app) }

// of returns one of some texts.
func (d *drawer) of(texts ...string) string { return texts[d.IntN(len(texts))] }

// A rangeQuery is a PromQL query from start to end, in ms.
type rangeQuery struct {
	text       string
	start, end int64
	step       time.Duration
}

// steps is how many steps a range query has, as a graph of that many points wants.
const steps = 120

// draws is how many answers are checked.
func (e expression) draws() int { return max(1, drawn/e.atOnce) }

// draw returns a query. It ends a minute before the last sample of the workload at the
// latest: VictoriaMetrics shows what is younger than 30 s only in part.
func (e expression) draw(d *drawer) rangeQuery {
	const minute = 60_000
	first, last := e.workload.begin(), e.workload.End-minute-e.span.Milliseconds()
	start := first
	if last > first {
		start += d.Int64N(last - first)
	}
	step := e.step
	if step == 0 {
		step = max(e.workload.Interval, (e.span / steps).Truncate(e.workload.Interval))
	}
	return rangeQuery{e.text(d), start, min(start+e.span.Milliseconds(), e.workload.End-minute), step}
}

// expressions returns the PromQL queries of a workload.
func expressions(w workload) []expression {
	hour, whole := w.window(), (time.Duration(w.Samples) * w.Interval).Truncate(w.Interval)
	small := func(d *drawer) string {
		metric := d.of("node_context_switches_total", "node_forks_total", "node_intr_total", "go_memstats_mallocs_total", "process_cpu_seconds_total")
		return fmt.Sprintf("sum by (job) (rate(%s[5m]))", metric)
	}
	gauge := func(d *drawer) string {
		return fmt.Sprintf("avg by (team) (node_memory_%s_bytes)", d.of("Active", "Buffers", "Cached", "Dirty", "MemFree", "Slab"))
	}
	series := func(d *drawer) string {
		return fmt.Sprintf("rate(node_network_receive_bytes_total{instance=%q,device=%q}[5m])", d.instance(false), d.of("bond0", "eth0", "eth1", "lo"))
	}
	list := []struct {
		name string
		span time.Duration
		text func(*drawer) string
	}{
		{"sum by (job) of rates of a small metric", hour, small},
		{"sum by (job) of rates of a small metric", whole, small},
		{"sum by (code) of rates of the largest metric", hour, func(*drawer) string {
			return "sum by (code) (rate(http_request_duration_seconds_bucket[5m]))"
		}},
		{"avg by (team) of a gauge", whole, gauge},
		{"quantile of a classic histogram", hour, func(d *drawer) string {
			return fmt.Sprintf("histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket{handler=%q}[5m])))", d.of("/api/v1/items", "/api/v1/login", "/api/v1/orders", "/healthz", "/metrics"))
		}},
		{"topk of rates", hour, func(d *drawer) string {
			return fmt.Sprintf("topk(5, rate(node_network_%s_bytes_total[5m]))", d.of("receive", "transmit"))
		}},
		{"all of one instance by a regex", hour, func(d *drawer) string {
			return fmt.Sprintf(`{__name__=~"node_.+",instance=%q}`, d.instance(false))
		}},
		{"one series", whole, series},
	}
	var all []expression
	for _, e := range list {
		all = append(all, expression{name: e.name + ", " + short(e.span), workload: w, span: e.span, text: e.text, atOnce: 1})
	}
	return all
}

// whole returns the query of a workload of one metric: alone, and 20 of it at once.
func whole(w workload) []expression {
	e := expression{
		workload: w, span: (time.Duration(w.Samples) * w.Interval).Truncate(w.Interval), step: time.Hour, atOnce: 1,
		text: func(*drawer) string { return fmt.Sprintf("sum by (job) (rate(%s[1h]))", w.Metric) },
	}
	e.name = fmt.Sprintf("sum by (job) of rates of %d series, %s, step 1 h", w.Series, short(e.span))
	many := e
	many.name, many.atOnce = e.name+", 20 at once", 20
	return []expression{e, many}
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
