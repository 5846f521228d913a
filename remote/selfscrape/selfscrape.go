// Package selfscrape stores the adapter's own metrics in the adapter, so that a
// fresh start has something to read and an operator has a history.
package selfscrape

import (
	"context"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/remote/ingest"
)

// Config says what a Scraper reads and where it writes. All fields but Logger
// are required.
type Config struct {
	Gatherer prometheus.Gatherer
	Appender appender
	// Job and Instance are labels of every series.
	Job, Instance string
	// Interval is the time between two scrapes.
	Interval time.Duration
	Now      func() time.Time
	Logger   log.Logger
}

type appender interface {
	Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error)
	AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) error
}

// Scraper stores metrics at an interval. Not safe for concurrent use.
type Scraper struct {
	cfg Config
	// last holds the series of the scrape before, by hash, and those of scrapes
	// before it that may not have been stored: those that are gone get a
	// staleness marker.
	last map[uint64]labels.Labels
	// said has the metadata that are stored, by metric family.
	said map[string]metadata.Metadata
}

// New returns a Scraper.
func New(cfg Config) *Scraper {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	return &Scraper{cfg: cfg, last: make(map[uint64]labels.Labels), said: make(map[string]metadata.Metadata)}
}

// Run scrapes at once and then at the interval, until ctx ends. Each scrape has
// one interval to finish.
func (s *Scraper) Run(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	for {
		scrape, cancel := context.WithTimeout(ctx, s.cfg.Interval)
		if err := s.Scrape(scrape); err != nil && ctx.Err() == nil {
			level.Warn(s.cfg.Logger).Log("msg", "cannot store the adapter's own metrics", "err", err)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Scrape stores the metrics as they are now, and then what is new of their metadata.
func (s *Scraper) Scrape(ctx context.Context) error {
	now := s.cfg.Now().UnixMilli()
	families, err := s.cfg.Gatherer.Gather()
	if err != nil {
		return err
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Time(now)}, families...)
	if err != nil {
		return err
	}
	seen := make(map[uint64]labels.Labels, len(samples))
	batch := make([]ingest.Series, 0, len(samples))
	for _, sample := range samples {
		ls := s.labels(sample.Metric)
		seen[ls.Hash()] = ls
		batch = append(batch, ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: now, V: float64(sample.Value)}}})
	}
	stale := math.Float64frombits(value.StaleNaN)
	for hash, ls := range s.last {
		if _, ok := seen[hash]; !ok {
			batch = append(batch, ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: now, V: stale}}})
		}
	}
	var rejected ingest.Rejected
	if _, err := s.cfg.Appender.Append(ctx, batch, &rejected); err != nil {
		maps.Copy(s.last, seen) // some may be stored
		return err
	}
	s.last = seen
	if err := s.describe(ctx, families, &rejected); err != nil {
		return err
	}
	return rejected.Err()
}

// describe stores the metadata that are not stored yet.
func (s *Scraper) describe(ctx context.Context, families []*dto.MetricFamily, rejected *ingest.Rejected) error {
	var changed []ingest.Metadata
	for _, f := range families {
		m := ingest.Metadata{Family: f.GetName(), Metadata: metadata.Metadata{Type: typeOf(f), Unit: f.GetUnit(), Help: f.GetHelp()}}
		if said, ok := s.said[m.Family]; !ok || said != m.Metadata {
			changed = append(changed, m)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := s.cfg.Appender.AppendMetadata(ctx, changed, rejected); err != nil {
		return err
	}
	for _, m := range changed {
		s.said[m.Family] = m.Metadata
	}
	return nil
}

// typeOf returns the type of a metric family, as Prometheus names it.
func typeOf(f *dto.MetricFamily) model.MetricType {
	switch t := f.GetType(); t {
	case dto.MetricType_UNTYPED:
		return model.MetricTypeUnknown
	case dto.MetricType_GAUGE_HISTOGRAM:
		return model.MetricTypeGaugeHistogram
	default:
		return model.MetricType(strings.ToLower(t.String()))
	}
}

// labels adds job and instance to those of a metric. As in any scrape, a label
// of the metric that has one of these names becomes exported_job and so on.
func (s *Scraper) labels(m model.Metric) labels.Labels {
	own := []labels.Label{{Name: model.JobLabel, Value: s.cfg.Job}, {Name: model.InstanceLabel, Value: s.cfg.Instance}}
	b := labels.NewBuilder(labels.EmptyLabels())
	for name, v := range m {
		b.Set(string(name), string(v))
	}
	for _, l := range own {
		if v := b.Get(l.Name); v != "" {
			b.Set(model.ExportedLabelPrefix+l.Name, v)
		}
		b.Set(l.Name, l.Value)
	}
	return b.Labels()
}
