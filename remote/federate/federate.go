// Package federate serves /federate: the current samples of the series that
// selectors match, in the text formats and in protobuf.
package federate

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gogo/protobuf/proto"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series/expr"
)

// Engine finds current samples and metadata: an *engine.Engine.
type Engine interface {
	Current(ctx context.Context, selectors [][]*labels.Matcher, mint int64) ([]current.Sample, error)
	Metadata(ctx context.Context, family string, limit int) ([]ingest.Metadata, error)
}

// Config is what a Handler is made of. All of it is required.
type Config struct {
	Engine Engine
	Errors *request.Responder
	Gate   *request.Gate
	Now    func() time.Time
	// Timeout is how long a federation may take, answer included.
	Timeout time.Duration
	// MaxSelectors is how many match[] a request may hold.
	MaxSelectors int
	// Lookback is how old the current sample of a series may be.
	Lookback time.Duration
}

// Handler serves the current samples of the series that any match[]
// selects. Without match[] there are none, as in Prometheus.
type Handler struct {
	cfg    Config
	parser parser.Parser
}

// New returns a handler of /federate.
func New(cfg Config) *Handler {
	return &Handler{cfg: cfg, parser: expr.NewParser(parser.Options{})}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, end := request.Begin(w, r, h.cfg.Timeout)
	defer end()
	request.Compressed(http.HandlerFunc(h.serve)).ServeHTTP(w, r.WithContext(ctx))
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	selectors, err := h.selectors(r)
	if err != nil {
		h.cfg.Errors.Fail(w, r, err)
		return
	}
	// The slot is held until the answer is sent: until then it is in memory.
	if err := h.cfg.Gate.Enter(ctx); err != nil {
		h.cfg.Errors.Fail(w, r, err)
		return
	}
	defer h.cfg.Gate.Leave(ctx)
	samples, err := h.current(ctx, selectors)
	var metadata map[string]ingest.Metadata
	if err == nil && len(samples) > 0 {
		metadata, err = h.metadata(ctx)
	}
	if err != nil {
		h.cfg.Errors.Fail(w, r, err)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtText, expfmt.FmtProtoDelim)
	w.Header().Set("Content-Type", string(format))
	if err := writeFamilies(w, format, samples, metadata); err != nil {
		h.cfg.Errors.Abort(r, fmt.Errorf("write federation: %w", err))
	}
}

// selectors reads the parameters of r.
func (h *Handler) selectors(r *http.Request) ([][]*labels.Matcher, error) {
	texts, err := request.MatchParams(r, h.cfg.MaxSelectors)
	if err != nil {
		return nil, err
	}
	selectors, err := h.parser.ParseMetricSelectors(texts)
	if err != nil {
		return nil, request.BadRequest("parse match[]: %w", err)
	}
	return selectors, nil
}

// current returns the current samples of selectors, sorted by metric name.
func (h *Handler) current(ctx context.Context, selectors [][]*labels.Matcher) ([]current.Sample, error) {
	if len(selectors) == 0 {
		return nil, nil
	}
	mint := h.cfg.Now().Add(-h.cfg.Lookback).UnixMilli()
	return h.cfg.Engine.Current(ctx, selectors, mint)
}

// metadata returns the metadata of all metric families, by name.
func (h *Handler) metadata(ctx context.Context) (map[string]ingest.Metadata, error) {
	all, err := h.cfg.Engine.Metadata(ctx, "", 0)
	metadata := make(map[string]ingest.Metadata, len(all))
	for _, m := range all {
		metadata[m.Family] = m
	}
	return metadata, err
}

// writeFamilies writes samples, which are sorted by metric name, as one family
// for each name.
func writeFamilies(w http.ResponseWriter, format expfmt.Format, samples []current.Sample, metadata map[string]ingest.Metadata) error {
	enc := expfmt.NewEncoder(w, format)
	for len(samples) > 0 {
		name := samples[0].Labels.Get(labels.MetricName)
		n := 1
		for n < len(samples) && samples[n].Labels.Get(labels.MetricName) == name {
			n++
		}
		for _, f := range families(format, name, samples[:n], metadata) {
			if err := enc.Encode(f); err != nil {
				return err
			}
		}
		samples = samples[n:]
	}
	if closer, ok := enc.(expfmt.Closer); ok {
		return closer.Close()
	}
	return nil
}

// families makes families of the samples of a name: one of floats, and one of
// native histograms, which only the protobuf format can hold. No format can hold
// those without a name.
func families(format expfmt.Format, name string, samples []current.Sample, metadata map[string]ingest.Metadata) (all []*dto.MetricFamily) {
	if name == "" {
		return nil
	}
	floats := &dto.MetricFamily{Name: proto.String(name)}
	histograms := &dto.MetricFamily{Name: proto.String(name), Type: dto.MetricType_HISTOGRAM.Enum()}
	for _, s := range samples {
		if s.H == nil && s.FH == nil {
			floats.Metric = append(floats.Metric, metric(s))
		} else if m, ok := histogramMetric(s); ok {
			histograms.Metric = append(histograms.Metric, m)
		}
	}
	describe(format, floats, metadata)
	if m, ok := metadata[name]; ok && m.Help != "" {
		histograms.Help = proto.String(m.Help)
	}
	if len(floats.Metric) > 0 {
		all = append(all, floats)
	}
	if len(histograms.Metric) > 0 && format.FormatType() == expfmt.TypeProtoDelim {
		all = append(all, histograms)
	}
	return all
}

// describe gives a family of untyped metrics the help, and where possible the
// type, of its metadata. The series of a classic histogram or summary are
// families of their own here, as they are in Prometheus, and stay untyped; so
// does a counter to which OpenMetrics would give another name.
func describe(format expfmt.Format, f *dto.MetricFamily, metadata map[string]ingest.Metadata) {
	f.Type = dto.MetricType_UNTYPED.Enum()
	m, ok := metadata[f.GetName()]
	if !ok {
		for _, kind := range []model.MetricType{model.MetricTypeGaugeHistogram, model.MetricTypeSummary} {
			if m, ok = metadata[ingest.FamilyName(f.GetName(), kind)]; ok {
				break
			}
		}
		m.Type = model.MetricTypeUnknown
	}
	if m.Help != "" {
		f.Help = proto.String(m.Help)
	}
	switch {
	case m.Type == model.MetricTypeGauge:
		f.Type = dto.MetricType_GAUGE.Enum()
		for _, metric := range f.Metric {
			metric.Gauge, metric.Untyped = &dto.Gauge{Value: metric.Untyped.Value}, nil
		}
	case m.Type == model.MetricTypeCounter && (format.FormatType() != expfmt.TypeOpenMetrics || strings.HasSuffix(f.GetName(), "_total")):
		f.Type = dto.MetricType_COUNTER.Enum()
		for _, metric := range f.Metric {
			metric.Counter, metric.Untyped = &dto.Counter{Value: metric.Untyped.Value}, nil
		}
	}
}

// histogramMetric turns a native histogram into a metric. One with custom
// buckets has no form in the format.
func histogramMetric(s current.Sample) (*dto.Metric, bool) {
	m := metric(s)
	m.Untyped = nil
	fh := s.FH
	if s.H != nil {
		fh = s.H.ToFloat(nil)
	}
	if fh.UsesCustomBuckets() {
		return nil, false
	}
	m.Histogram = &dto.Histogram{
		SampleCountFloat: proto.Float64(fh.Count),
		SampleSum:        proto.Float64(fh.Sum),
		Schema:           proto.Int32(fh.Schema),
		ZeroThreshold:    proto.Float64(fh.ZeroThreshold),
		ZeroCountFloat:   proto.Float64(fh.ZeroCount),
		PositiveSpan:     dtoSpans(fh.PositiveSpans),
		PositiveCount:    fh.PositiveBuckets,
		NegativeSpan:     dtoSpans(fh.NegativeSpans),
		NegativeCount:    fh.NegativeBuckets,
	}
	return m, true
}

func dtoSpans(spans []histogram.Span) []*dto.BucketSpan {
	all := make([]*dto.BucketSpan, len(spans))
	for i, s := range spans {
		all[i] = &dto.BucketSpan{Offset: proto.Int32(s.Offset), Length: proto.Uint32(s.Length)}
	}
	return all
}

// metric turns a sample into a metric. One without the label "instance" gets
// an empty one, as in Prometheus: a scraper would otherwise add the address of the
// adapter.
func metric(s current.Sample) *dto.Metric {
	m := &dto.Metric{
		TimestampMs: proto.Int64(s.T),
		Untyped:     &dto.Untyped{Value: proto.Float64(s.V)},
	}
	hasInstance := false
	s.Labels.Range(func(l labels.Label) {
		if l.Name == labels.MetricName {
			return
		}
		hasInstance = hasInstance || l.Name == model.InstanceLabel
		m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
	})
	if !hasInstance {
		m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(model.InstanceLabel), Value: proto.String("")})
	}
	return m
}
