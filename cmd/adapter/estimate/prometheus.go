package estimate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/series"
)

// requestTimeout bounds one request to Prometheus, maxBody its answer in bytes, without that
// of series, which is not read to its end.
const (
	requestTimeout = time.Minute
	maxBody        = 64 << 20
)

// minUptime is how long a Prometheus must run so that the series that ended since its start
// say how many do in a day: it forgets them every two hours.
const minUptime = 12 * time.Hour

// A Source is a running Prometheus.
type Source struct {
	// URL is its base, with a prefix if it has one.
	URL *url.URL
	// Schema makes the keys of its series.
	Schema series.Schema
	// Between is the time between two reads of its counters, a multiple of its scrape
	// intervals: the samples of that time are counted.
	Between time.Duration
}

// Measure reads what there is to know of a Prometheus. It takes Between, and seconds for a
// sample of its series. An error names what Prometheus lacks.
func (s Source) Measure(ctx context.Context) (m Measured, err error) {
	first, err := s.metrics(ctx)
	if err != nil {
		return m, err
	}
	if m.Version, err = first.version(); err != nil {
		return m, err
	}
	if _, _, err := first.samples(); err != nil { // before the wait
		return m, err
	}
	select {
	case <-ctx.Done():
		return m, ctx.Err()
	case <-time.After(time.Until(first.read.Add(s.Between))):
	}
	second, err := s.metrics(ctx)
	if err != nil {
		return m, err
	}
	if err := m.count(first, second); err != nil {
		return m, err
	}
	if err := m.churn(second); err != nil {
		return m, err
	}
	return m, s.sample(ctx, &m)
}

// count sets the rates of samples.
func (m *Measured) count(first, second scraped) error {
	all, histograms, err := second.samples()
	if err != nil {
		return err
	}
	allBefore, histogramsBefore, err := first.samples()
	if err != nil {
		return err
	}
	seconds := second.read.Sub(first.read).Seconds()
	switch samples := all - allBefore; {
	case samples < 0:
		return fmt.Errorf("%s was restarted while its samples were counted: try again", first.url)
	case samples == 0:
		return fmt.Errorf("%s has appended no sample in %.0f s: give --measure-for its longest scrape interval or more", first.url, seconds)
	default:
		m.SamplesPerSecond = samples / seconds
		m.HistogramShare = (histograms - histogramsBefore) / samples
	}
	return nil
}

// churn sets the series that there are, and how many end in a day: those that were created
// since the start of Prometheus, in its log or after, and are no more.
func (m *Measured) churn(s scraped) (err error) {
	if m.Series, err = s.sum("prometheus_tsdb_head_series", nil); err != nil {
		return err
	}
	if m.Series == 0 {
		return fmt.Errorf("%s has no series", s.url)
	}
	created, err := s.sum("prometheus_tsdb_head_series_created_total", nil)
	if err != nil {
		return err
	}
	started, err := s.sum("process_start_time_seconds", nil)
	if err != nil {
		return err
	}
	uptime := float64(s.read.UnixMilli())/1000 - started
	if uptime < minUptime.Seconds() {
		m.note("Prometheus has run for %s only, which does not say how many series end in a day: counted as none", time.Duration(uptime*1e9).Round(time.Minute))
		return nil
	}
	m.ChurnPerDay = max(0, created-m.Series) / uptime * day.Seconds()
	return nil
}

func (m *Measured) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// scraped are the metrics of a Prometheus.
type scraped struct {
	url      string
	read     time.Time
	families map[string]*dto.MetricFamily
}

// metrics reads the metrics that Prometheus has about itself.
func (s Source) metrics(ctx context.Context) (found scraped, err error) {
	body, err := s.get(ctx, "metrics", nil)
	if err != nil {
		return found, err
	}
	found = scraped{url: s.URL.JoinPath("metrics").Redacted(), read: time.Now()}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if found.families, err = parser.TextToMetricFamilies(strings.NewReader(string(body))); err != nil {
		return found, fmt.Errorf("%s is not a Prometheus: %w", found.url, err)
	}
	return found, nil
}

// version returns the version of Prometheus, or an error if it is none.
func (s scraped) version() (string, error) {
	const name = "prometheus_build_info"
	family, ok := s.families[name]
	if !ok {
		return "", fmt.Errorf("%s is not that of a Prometheus: it has no metric %s", s.url, name)
	}
	for _, m := range family.Metric {
		for _, l := range m.Label {
			if l.GetName() == "version" {
				return l.GetValue(), nil
			}
		}
	}
	return "", nil
}

// sum returns the sum of a counter or gauge, over the series that is is true for. It may be
// nil.
func (s scraped) sum(name string, is func(*dto.Metric) bool) (sum float64, err error) {
	family, ok := s.families[name]
	if !ok {
		return 0, fmt.Errorf("%s has no metric %s", s.url, name)
	}
	for _, m := range family.Metric {
		if is == nil || is(m) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum, nil
}

// samples returns the samples that were appended, and those of them that are histograms. Early
// versions do not tell them apart.
func (s scraped) samples() (all, histograms float64, err error) {
	const name = "prometheus_tsdb_head_samples_appended_total"
	if all, err = s.sum(name, nil); err != nil {
		return 0, 0, err
	}
	histograms, err = s.sum(name, func(m *dto.Metric) bool {
		for _, l := range m.Label {
			if l.GetName() == "type" && l.GetValue() == "histogram" {
				return true
			}
		}
		return false
	})
	return all, histograms, err
}

// open requests a path of Prometheus. The caller closes the body.
func (s Source) open(ctx context.Context, path string, params url.Values) (io.ReadCloser, error) {
	at := s.URL.JoinPath(path)
	at.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "promtable")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("Prometheus cannot be reached: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 200)) // for the message only
		res.Body.Close()
		return nil, fmt.Errorf("%s answers %s: %.200q", s.URL.JoinPath(path).Redacted(), res.Status, text)
	}
	return res.Body, nil
}

// get returns the answer to a request.
func (s Source) get(ctx context.Context, path string, params url.Values) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	opened, err := s.open(ctx, path, params)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	body, err = io.ReadAll(io.LimitReader(opened, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errors.New("the answer is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.URL.JoinPath(path).Redacted(), err)
	}
	return body, nil
}

// api decodes the data of an answer of Prometheus' API.
func (s Source) api(ctx context.Context, path string, params url.Values, data any) error {
	body, err := s.get(ctx, path, params)
	if err != nil {
		return err
	}
	answer := struct{ Data any }{data}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s is not that of a Prometheus: %w", s.URL.JoinPath(path).Redacted(), err)
	}
	return nil
}
