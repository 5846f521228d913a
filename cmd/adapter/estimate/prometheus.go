package estimate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/series"
)

const (
	// requestTimeout bounds one request to Prometheus, maxBody how much of its answer is read, in bytes, and maxSeries how much of a list
	// of series: early versions list them all.
	requestTimeout     = time.Minute
	maxBody, maxSeries = 64 << 20, 1 << 20
	// minUptime is how long a Prometheus must run so that the series that ended since its start
	// say how many do in a day: it forgets them every two hours.
	minUptime = 12 * time.Hour
)

// A Source is a running Prometheus.
type Source struct {
	URL    *url.URL      // its base, with a prefix if it has one
	Client *http.Client  // nil is http.DefaultClient
	Schema series.Schema // makes the keys of its series
	// Between is the time between two reads of its counters, a multiple of its scrape
	// intervals: the samples of that time are counted.
	Between time.Duration
}

// Measure reads what there is to know of a Prometheus. It takes Between, and seconds for a
// sample of its series. An error names what Prometheus lacks.
func (s Source) Measure(ctx context.Context) (m Measured, err error) {
	before, err := s.counters(ctx)
	if err != nil {
		return m, err
	}
	select {
	case <-ctx.Done():
		return m, ctx.Err()
	case <-time.After(time.Until(before.read.Add(s.Between))):
	}
	now, err := s.counters(ctx)
	if err != nil {
		return m, err
	}
	seconds, samples := now.read.Sub(before.read).Seconds(), now.appended-before.appended
	switch {
	case samples < 0:
		return m, fmt.Errorf("%s was restarted while its samples were counted: try again", s.at("metrics"))
	case samples == 0:
		return m, fmt.Errorf("%s has appended no sample in %.0f s: give --measure-for its longest scrape interval or more", s.at("metrics"), seconds)
	case now.series == 0:
		return m, fmt.Errorf("%s has no series", s.at("metrics"))
	}
	m.Version, m.Series = now.version, now.series
	m.SamplesPerSecond, m.HistogramShare = samples/seconds, (now.histograms-before.histograms)/samples
	// Those end that were created since the start of Prometheus, in its log or after, and are no more.
	if uptime := float64(now.read.UnixMilli())/1000 - now.start; uptime < minUptime.Seconds() {
		m.note("Prometheus has run for %s only, which does not say how many series end in a day: counted as none", time.Duration(uptime*1e9).Round(time.Minute))
	} else {
		m.ChurnPerDay = max(0, now.created-m.Series) / uptime * day.Seconds()
	}
	return m, s.sample(ctx, &m)
}

// counters are what a Prometheus counts about itself, as of a time. Of the appended samples early versions do not tell histograms.
type counters struct {
	read                                                time.Time
	version                                             string
	build, appended, histograms, series, created, start float64
}

// counters reads the metrics of Prometheus.
func (s Source) counters(ctx context.Context) (c counters, err error) {
	body, err := s.get(ctx, "metrics", nil, maxBody)
	if err != nil {
		return c, err
	}
	c.read = time.Now()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return c, fmt.Errorf("%s is not a Prometheus: %w", s.at("metrics"), err)
	}
	for _, metric := range []struct {
		name string
		sum  *float64
	}{
		{"prometheus_build_info", &c.build}, {"prometheus_tsdb_head_samples_appended_total", &c.appended}, {"process_start_time_seconds", &c.start},
		{"prometheus_tsdb_head_series", &c.series}, {"prometheus_tsdb_head_series_created_total", &c.created},
	} {
		family, ok := families[metric.name]
		switch {
		case !ok && metric.sum == &c.build:
			return c, fmt.Errorf("%s is not that of a Prometheus: it has no metric %s", s.at("metrics"), metric.name)
		case !ok:
			return c, fmt.Errorf("%s has no metric %s", s.at("metrics"), metric.name)
		}
		for _, m := range family.Metric {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			*metric.sum += v
			for _, l := range m.Label {
				switch {
				case metric.sum == &c.build && l.GetName() == "version":
					c.version = l.GetValue()
				case metric.sum == &c.appended && l.GetName() == "type" && l.GetValue() == "histogram":
					c.histograms += v
				}
			}
		}
	}
	return c, nil
}

// at returns the address of a path of Prometheus, for messages.
func (s Source) at(path string) string { return s.URL.JoinPath(path).Redacted() }

// get returns the answer to a request, up to limit bytes of it.
func (s Source) get(ctx context.Context, path string, params url.Values, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	address := s.URL.JoinPath(path)
	address.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "promtable")
	res, err := cmp.Or(s.Client, http.DefaultClient).Do(req)
	if err != nil {
		return nil, fmt.Errorf("Prometheus cannot be reached: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, limit))
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s: %.200q", s.at(path), res.Status, body)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", s.at(path), err)
	case len(body) == maxBody:
		return nil, fmt.Errorf("read %s: the answer is too long", s.at(path))
	}
	return body, nil
}

// api decodes the data of an answer of Prometheus' API.
func (s Source) api(ctx context.Context, path string, params url.Values, data any) error {
	body, err := s.get(ctx, path, params, maxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, &struct{ Data any }{data}); err != nil {
		return fmt.Errorf("%s is not that of a Prometheus: %w", s.at(path), err)
	}
	return nil
}
