package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// A workload says which samples there are. Equal workloads have equal samples.
type workload struct {
	Seed     uint64
	Series   int
	Samples  int // of each series
	Interval time.Duration
	Metric   string // of all series; empty for all metrics that a host has
	// End is the time of the last scrape, in ms since 1970. A target is scraped
	// up to an interval earlier, each at an offset of its own.
	End int64
}

// Spans of the adapter's stored format in ms.
const (
	indexPeriod = 1 << 29
	window      = 1 << 23
)

// endBefore returns when the samples end that are sent at now, in ms: in the middle
// of the last window before that is not in the last eighth of an index period. The
// adapter writes new series to two periods then, and half an hour of samples in two
// windows has twice the chunks: runs would differ by the time of day.
func endBefore(now int64) int64 {
	end := now - (now+window/2)%window
	if late := end%indexPeriod - indexPeriod/8*7; late > 0 {
		end -= (late/window + 1) * window
	}
	return end
}

// turnBefore returns when the samples end that are sent at now, in ms: in the middle of the last
// window of an index period. Nearly all series are written to the next period, too.
func turnBefore(now int64) int64 { return now - now%indexPeriod - window/2 }

// shapes returns the series that a host has in this workload.
func (w workload) shapes() []shape {
	return slices.DeleteFunc(hostShapes(), func(s shape) bool { return w.Metric != "" && s.name != w.Metric })
}

// total is the number of samples.
func (w workload) total() int { return w.Series * w.Samples }

// begin is the time of the first scrape, in ms.
func (w workload) begin() int64 {
	return w.End - int64(w.Samples-1)*w.Interval.Milliseconds()
}

// A generator makes the samples of a workload, one scrape of all series after
// the other. It is not safe for concurrent use.
type generator struct {
	workload
	shapes  []shape
	series  []state
	restart *rand.Rand // of targets
	done    int        // scrapes
	// T and V are the times, in ms, and the values of the scrape, by series.
	T []int64
	V []float64
}

// A state is what a series remembers.
type state struct {
	random rand.PCG
	n      float64 // position, in the unit in which it moves
}

// restartOdds is how many scrapes a target lives, on average. A restart sets the
// counters of an application to 0; a host does not restart.
const restartOdds = 3000

func newGenerator(w workload) *generator {
	g := &generator{
		workload: w, shapes: w.shapes(), series: make([]state, w.Series),
		restart: rand.New(rand.NewPCG(w.Seed, math.MaxUint64)),
		T:       make([]int64, w.Series), V: make([]float64, w.Series),
	}
	for i := range g.series {
		host, sh := g.locate(i)
		stream := uint64(i) << 1
		if sh.group != 0 {
			stream = (uint64(host)<<16|uint64(sh.group))<<1 | 1
		}
		s := &g.series[i]
		s.random.Seed(w.Seed, stream)
		s.n = sh.first(rand.New(&s.random))
	}
	return g
}

// locate returns the host of a series and its shape.
func (g *generator) locate(i int) (host int, sh *shape) {
	return i / len(g.shapes), &g.shapes[i%len(g.shapes)]
}

// labels returns the labels of a series.
func (g *generator) labels(i int) labels.Labels {
	host, sh := g.locate(i)
	b := labels.NewBuilder(labels.FromStrings(sh.labels...))
	b.Set("__name__", sh.name)
	b.Set("cluster", fmt.Sprintf("prod-%d", host/400))
	b.Set("environment", "production")
	b.Set("region", []string{"eu-west-1", "us-east-1", "ap-south-1"}[host%3])
	b.Set("team", []string{"payments", "search", "platform", "storage", "web"}[host%5])
	b.Set("instance", instance(host, sh.app))
	if sh.app {
		b.Set("job", "shop-api")
		b.Set("pod", fmt.Sprintf("shop-api-%08x-%05d", uint32(host/40)*2654435761, host))
	} else {
		b.Set("job", "node-exporter")
		b.Set("rack", fmt.Sprintf("r%02d", host%24))
	}
	return b.Labels()
}

// labelsOf returns the labels of the series [from, limit).
func (g *generator) labelsOf(from, limit int) []labels.Labels {
	list := make([]labels.Labels, 0, limit-from)
	for i := from; i < limit; i++ {
		list = append(list, g.labels(i))
	}
	return list
}

// sent returns the series [from, limit) with their samples of the scrape.
func (g *generator) sent(from, limit int) []harness.SentSeries {
	list := make([]harness.SentSeries, 0, limit-from)
	for i, ls := range g.labelsOf(from, limit) {
		list = append(list, harness.SeriesOf(ls, harness.PointAt(g.T[from+i], g.V[from+i])))
	}
	return list
}

// instance names a target.
func instance(host int, app bool) string {
	address := fmt.Sprintf("10.%d.%d.%d", host>>16, host>>8&255, host&255)
	if app {
		return address + ":8080"
	}
	return address + ":9100"
}

// offset is how long before the time of the scrape a target is scraped, in ms.
func (g *generator) offset(host int, app bool) int64 {
	x := uint64(host) << 1
	if app {
		x |= 1
	}
	return int64((x + 1) * 0x9e3779b97f4a7c15 >> 33 % uint64(g.Interval.Milliseconds()))
}

// scrape moves to the next scrape, and fills T and V. It returns false at the
// end.
func (g *generator) scrape() bool {
	if g.done == g.Samples {
		return false
	}
	t := g.begin() + int64(g.done)*g.Interval.Milliseconds()
	seconds := g.Interval.Seconds()
	restarted := false
	for i := range g.series {
		host, sh := g.locate(i)
		if i%len(g.shapes) == 0 {
			restarted = g.restart.IntN(restartOdds) == 0
		}
		s := &g.series[i]
		switch {
		case g.done == 0:
		case restarted && sh.app && sh.counts():
			s.n = 0
		default:
			s.n = sh.next(s.n, seconds, rand.New(&s.random))
		}
		g.T[i], g.V[i] = t-g.offset(host, sh.app), sh.value(s.n)
	}
	g.done++
	return true
}
