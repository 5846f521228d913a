package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gogo/protobuf/proto"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/remote/engine"
)

// federateHandler serves the newest samples of the series that any match[]
// selects. Without match[] there are none, as in Prometheus.
type federateHandler struct {
	cfg    Config
	edge   *edge
	gate   *gate
	parser parser.Parser
}

// ServeHTTP implements http.Handler.
func (h *federateHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	deadline := time.Now().Add(h.cfg.ReadTimeout)
	ctx, cancel := context.WithDeadline(r.Context(), deadline)
	defer cancel()
	defer limitAnswer(w, deadline)()
	selectors, err := h.selectors(r)
	if err != nil {
		h.edge.fail(w, r, err)
		return
	}
	// The slot is for the answer, too, which is in memory until it is sent.
	if err := h.gate.enter(ctx); err != nil {
		h.edge.fail(w, r, err)
		return
	}
	defer h.gate.leave()
	samples, err := h.current(ctx, selectors)
	if err != nil {
		h.edge.fail(w, r, err)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtText)
	w.Header().Set("Content-Type", string(format))
	if err := writeFamilies(w, format, samples); err != nil {
		h.edge.abort(r, fmt.Errorf("write federation: %w", err))
	}
}

// selectors reads the parameters of r.
func (h *federateHandler) selectors(r *http.Request) ([][]*labels.Matcher, error) {
	texts, err := matchParams(r, h.cfg.MaxQueries)
	if err != nil {
		return nil, err
	}
	selectors, err := h.parser.ParseMetricSelectors(texts)
	if err != nil {
		return nil, badRequest("parse match[]: %w", err)
	}
	return selectors, nil
}

// matchParams returns the match[] parameters of r.
func matchParams(r *http.Request, limit int) ([]string, error) {
	if err := r.ParseForm(); err != nil {
		return nil, badRequest("parse form: %w", err)
	}
	texts := r.Form["match[]"]
	if n := len(texts); n > limit {
		return nil, badRequest("%d match[] parameters, the limit is %d", n, limit)
	}
	return texts, nil
}

// current returns the newest samples of selectors, sorted by metric name.
func (h *federateHandler) current(ctx context.Context, selectors [][]*labels.Matcher) ([]engine.CurrentSample, error) {
	if len(selectors) == 0 {
		return nil, nil
	}
	mint := h.cfg.Now().Add(-h.cfg.CurrentLookback).UnixMilli()
	return h.cfg.Engine.Current(ctx, "", selectors, mint)
}

// writeFamilies writes samples, which are sorted by metric name, as one untyped
// family for each name.
func writeFamilies(w http.ResponseWriter, format expfmt.Format, samples []engine.CurrentSample) error {
	enc := expfmt.NewEncoder(w, format)
	for len(samples) > 0 {
		name := samples[0].Labels.Get(labels.MetricName)
		n := 1
		for n < len(samples) && samples[n].Labels.Get(labels.MetricName) == name {
			n++
		}
		if name != "" { // no exposition can hold the others
			if err := enc.Encode(family(name, samples[:n])); err != nil {
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

func family(name string, samples []engine.CurrentSample) *dto.MetricFamily {
	f := &dto.MetricFamily{
		Name:   proto.String(name),
		Type:   dto.MetricType_UNTYPED.Enum(),
		Metric: make([]*dto.Metric, len(samples)),
	}
	for i, s := range samples {
		f.Metric[i] = metric(s)
	}
	return f
}

// metric turns a sample into a metric. One without the label "instance" gets
// an empty one, as Prometheus does it, so that whoever scrapes this does not
// put the adapter there.
func metric(s engine.CurrentSample) *dto.Metric {
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
