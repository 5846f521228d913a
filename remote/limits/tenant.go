package limits

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/reload"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// Config says what a File is made of. All of it is required.
type Config struct {
	Path string
	// Tenancy says that the store has tenants.
	Tenancy    bool
	Now        func() time.Time
	Logger     log.Logger
	Registerer prometheus.Registerer
}

// A File has the limits of all tenants. It is safe for concurrent use.
type File struct {
	file    *reload.File[*table]
	now     func() time.Time
	metrics metrics

	mu      sync.Mutex
	tenants map[string]*Tenant
}

// Open reads a file.
func Open(cfg Config) (*File, error) {
	f := &File{now: cfg.Now, metrics: newMetrics(cfg.Registerer), tenants: make(map[string]*Tenant)}
	good := metricset.New(cfg.Registerer).Gauge("adapter_limits_file_last_reload_successful",
		"1 if the limits in force are those that --limits.file has now, 0 if it could not be read again.")
	var err error
	f.file, err = reload.Open(reload.Config[*table]{
		Path: cfg.Path, Parse: func(text []byte) (*table, error) { return parse(text, cfg.Tenancy) }, Logger: cfg.Logger, Good: good,
	})
	if err != nil {
		return nil, err
	}
	metricset.New(cfg.Registerer).Collect(nearness{f})
	return f, nil
}

// Run reads the file again when it changes, until ctx ends.
func (f *File) Run(ctx context.Context) { f.file.Run(ctx) }

// Reload reads the file again.
func (f *File) Reload() { f.file.Reload() }

// Of returns the limits of a tenant, which is empty in a store without tenants.
func (f *File) Of(name string) *Tenant {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tenants[name]
	if t == nil {
		t = &Tenant{file: f, name: name, label: f.metrics.label(name), samples: newBucket(), requests: newBucket(), series: seriesUse{added: newBucket()}}
		f.tenants[name] = t
	}
	return t
}

// A Tenant counts what one tenant writes. It is safe for concurrent use.
type Tenant struct {
	file *File
	// label is the name in metrics.
	name, label       string
	samples, requests *bucket
	series            seriesUse
	// queries is how many run since the last began, it included.
	queries atomic.Int64

	// relabel guards relabelling, which is made of relabelledBy.
	relabel      sync.Mutex
	relabelling  *ingest.Relabelling
	relabelledBy *relabelling
}

// limits returns those in force.
func (t *Tenant) limits() *Limits {
	all, _ := t.file.file.Value()
	return all.of(t.name)
}

// Admit counts a write. The error is a 503 that says when it may be repeated, and nothing of the write may be stored.
func (t *Tenant) Admit(batch []ingest.Series) error {
	l, now := t.limits(), t.file.now()
	if wait := t.requests.at(now, l.RequestRate, l.RequestBurst, 1); wait > 0 && !t.exceeds(l, requestRate) {
		return request.Later(wait, "%smore than %g writes a second, the limit %s of --limits.file", t.subject(), l.RequestRate, requestRate)
	}
	if l.IngestionRate == 0 {
		return nil
	}
	samples := 0
	for i := range batch {
		samples += batch[i].Size()
	}
	if wait := t.samples.at(now, l.IngestionRate, l.IngestionBurst, samples); wait > 0 && !t.exceeds(l, ingestionRate) {
		metric, of := largest(batch)
		return request.Later(wait, "%smore than %g samples a second, the limit %s of --limits.file; of the %d of this write %d are of %.80q",
			t.subject(), l.IngestionRate, ingestionRate, samples, of, metric)
	}
	return nil
}

// largest returns the metric with the most samples of a write, and how many it has.
func largest(batch []ingest.Series) (metric string, samples int) {
	sizes := make(map[string]int)
	for i := range batch {
		name := batch[i].DecodedLabels().Get(labels.MetricName)
		sizes[name] += batch[i].Size()
		if n := sizes[name]; n > samples || n == samples && name < metric {
			metric, samples = name, n
		}
	}
	return metric, samples
}

// exceeds counts that a limit is exceeded, and says whether that is all.
func (t *Tenant) exceeds(l *Limits, name string) (tracked bool) {
	tracked = slices.Contains(l.Track, name)
	t.file.metrics.exceeded(name, t.label, tracked)
	return tracked
}

// subject begins an error, if there are tenants.
func (t *Tenant) subject() string {
	if t.name == "" {
		return ""
	}
	return "tenant " + t.name + ": "
}

// CheckLabels returns an error if a series has more, or longer, labels than is allowed. It names the worst of them.
func (t *Tenant) CheckLabels(ls labels.Labels) error {
	l := t.limits()
	if l.LabelNames > 0 && ls.Len() > l.LabelNames && !t.exceeds(l, labelNames) {
		return labelError{t, ls, fmt.Sprintf("%d labels, the limit %s is %d", ls.Len(), labelNames, l.LabelNames)}
	}
	if l.NameLength <= 0 && l.ValueLength <= 0 {
		return nil
	}
	var name, value labels.Label // the longest
	ls.Range(func(of labels.Label) {
		if len(of.Name) > len(name.Name) {
			name = of
		}
		if len(of.Value) > len(value.Value) {
			value = of
		}
	})
	if l.NameLength > 0 && len(name.Name) > l.NameLength && !t.exceeds(l, nameLength) {
		return labelError{t, ls, fmt.Sprintf("the name %.40q has %d bytes, the limit %s is %d", name.Name, len(name.Name), nameLength, l.NameLength)}
	}
	if l.ValueLength > 0 && len(value.Value) > l.ValueLength && !t.exceeds(l, valueLength) {
		return labelError{t, ls, fmt.Sprintf("the value of %.40q has %d bytes, the limit %s is %d", value.Name, len(value.Value), valueLength, l.ValueLength)}
	}
	return nil
}

// A labelError says why a series is refused. It makes its text only when Error is called: of many only some are read.
type labelError struct {
	t    *Tenant
	ls   labels.Labels
	what string
}

func (e labelError) Error() string {
	return fmt.Sprintf("%sseries %s: %s", e.t.subject(), series.Abbreviate(e.ls), e.what)
}

// Used returns which part of each limit is used, for those that add up.
func (t *Tenant) Used(now time.Time) map[string]float64 {
	l, parts := t.limits(), make(map[string]float64)
	if l.IngestionRate > 0 {
		parts[ingestionRate] = t.samples.used(now, l.IngestionRate, l.IngestionBurst)
	}
	if l.RequestRate > 0 {
		parts[requestRate] = t.requests.used(now, l.RequestRate, l.RequestBurst)
	}
	if l.NewSeries > 0 {
		parts[newSeries] = t.series.added.used(now, float64(l.NewSeries)/60, l.NewSeries)
	}
	all, largest := t.series.used(now)
	if l.Series > 0 {
		parts[allSeries] = float64(all) / float64(l.Series)
	}
	if l.MetricSeries > 0 {
		parts[metricSeries] = float64(largest) / float64(l.MetricSeries)
	}
	if l.Concurrency > 0 {
		parts[concurrency] = float64(t.queries.Load()) / float64(l.Concurrency)
	}
	return parts
}
