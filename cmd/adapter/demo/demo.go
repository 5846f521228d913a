// Package demo makes the series of a small shop, as a Prometheus would have scraped them for years: requests that follow the day
// and the week and grow, processes that restart, hosts, temperatures, and times without samples. Equal histories have equal samples.
//
//	which series there are, what they are, and when they
//	have no samples                                        demo.go
//	their samples                                          series.go
package demo

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
)

// Interval is the time between two scrapes, in milliseconds.
const Interval = 15_000

const (
	minute = 60_000
	hour   = 60 * minute
	day    = 24 * hour
	year   = 365 * day
)

// A History says what there is. Begin and End, in milliseconds, are the times of the first and of the last scrape, or less than an
// Interval before and after these.
type History struct {
	Seed       uint64
	Begin, End int64
}

// A target is what is scraped at once.
type target struct {
	instance string
	// load is how busy it is, 1 for most, offset how long after the others it is scraped, in milliseconds.
	load   float64
	offset int64
	// gaps are in order of time and do not overlap.
	gaps []gap
}

// A gap is a time without samples, in [from, to). A process or a host that was down begins with new counters; where all is set it was
// Prometheus.
type gap struct {
	from, to int64
	all      bool
}

// targets returns those of a history: the processes of the shop, the hosts, and a gateway to sensors.
func (h History) targets() (shops, nodes []*target, sensors *target) {
	r := rand.New(rand.NewPCG(h.Seed, 0))
	shops = []*target{{instance: "shop-1:8080", load: 1}, {instance: "shop-2:8080", load: 1.1}, {instance: "shop-3:8080", load: 0.9}}
	nodes = []*target{{instance: "node-1:9100", load: 1}, {instance: "node-2:9100", load: 0.7}}
	sensors = &target{instance: "sensors:8000", load: 1}

	for at := h.Begin + r.Int64N(7*day); at < h.End; at += day + r.Int64N(18*day) { // deployments, one process after the other
		for i, t := range shops {
			t.down(at+int64(i)*2*minute, minute)
		}
	}
	shops[1].down(h.part(0.35), min(2*day, (h.End-h.Begin)/50))
	for _, t := range nodes {
		for at := h.Begin + r.Int64N(90*day); at < h.End; at += 30*day + r.Int64N(60*day) {
			t.down(at, 3*minute)
		}
	}
	for _, t := range slices.Concat(shops, nodes, []*target{sensors}) {
		t.offset = r.Int64N(Interval)
		t.gaps = append(t.gaps, gap{h.part(0.62), h.part(0.62) + 40*minute, true})
		slices.SortFunc(t.gaps, func(a, b gap) int { return cmp.Compare(a.from, b.from) })
		last := int64(0)
		t.gaps = slices.DeleteFunc(t.gaps, func(g gap) bool {
			overlaps := g.from <= last
			if !overlaps {
				last = g.to
			}
			return overlaps
		})
	}
	return shops, nodes, sensors
}

// part returns the time after this part of the history.
func (h History) part(p float64) int64 { return h.Begin + int64(p*float64(h.End-h.Begin)) }

// down adds a time in which t was not there, in milliseconds.
func (t *target) down(from, long int64) { t.gaps = append(t.gaps, gap{from: from, to: from + long}) }

// Series returns the series of a history, from its begin on.
func (h History) Series() (all []*Series) {
	shops, nodes, sensors := h.targets()
	add := func(t *target, job, name string, k kind, scale float64, ls ...string) {
		r := rand.New(rand.NewPCG(h.Seed, uint64(len(all)+1)))
		b := labels.NewBuilder(labels.FromStrings(ls...)).Set(labels.MetricName, name).Set("job", job).Set("instance", t.instance)
		all = append(all, &Series{Labels: b.Labels(), target: t, kind: k, scale: scale, history: h, at: h.Begin - h.Begin%Interval, random: r.Uint64() | 1})
	}
	for _, t := range shops {
		for i, handler := range []string{"/", "/cart"} {
			add(t, "shop", "http_requests_total", requests, []float64{40, 8}[i], "handler", handler, "code", "200")
			add(t, "shop", "http_requests_total", failures, []float64{0.2, 0.1}[i], "handler", handler, "code", "500")
		}
		add(t, "shop", "process_resident_memory_bytes", memory, 180e6)
		add(t, "shop", "up", up, 1)
	}
	for _, t := range nodes {
		for i, mode := range []string{"idle", "system", "user"} {
			add(t, "node", "node_cpu_seconds_total", []kind{idle, busy, busy}[i], []float64{0.26, 0.06, 0.2}[i], "cpu", "0", "mode", mode)
		}
	}
	for i, room := range []string{"office", "servers"} {
		add(sensors, "sensors", "room_temperature_celsius", temperature, []float64{19, 24}[i], "room", room)
	}
	return all
}

// Metadata returns what is to be said of the metric families of all series, by name.
func Metadata() map[string]metadata.Metadata {
	return map[string]metadata.Metadata{
		"http_requests_total":           {Type: model.MetricTypeCounter, Help: "Requests answered, by handler and code."},
		"process_resident_memory_bytes": {Type: model.MetricTypeGauge, Unit: "bytes", Help: "Resident memory of the process."},
		"up":                            {Type: model.MetricTypeGauge, Help: "1 if the target answered the scrape, else 0."},
		"node_cpu_seconds_total":        {Type: model.MetricTypeCounter, Unit: "seconds", Help: "Seconds that the cores spent in each mode."},
		"room_temperature_celsius":      {Type: model.MetricTypeGauge, Unit: "celsius", Help: "Temperature of the room."},
	}
}
