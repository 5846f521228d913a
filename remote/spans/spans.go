// Package spans makes the spans of traces: what a request spends its time on. Where they go is set by the program; if nowhere, they cost next to nothing.
package spans

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

var tracer = otel.Tracer("github.com/promtable/promtable")

// A Span is a part of a request.
type Span struct{ span trace.Span }

// Start begins a span in that of ctx. The caller ends it.
func Start(ctx context.Context, name string) (context.Context, Span) {
	ctx, span := tracer.Start(ctx, name)
	return ctx, Span{span}
}

// Count adds how many of something the span had.
func (s Span) Count(what string, n int) {
	if s.span.IsRecording() {
		s.span.SetAttributes(attribute.Int(what, n))
	}
}

// End ends the span, with the error if it has failed.
func (s Span) End(err error) {
	if err != nil && s.span.IsRecording() {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// Exemplar returns the label of an exemplar that names the trace of a request, or nil if that is not kept.
func Exemplar(ctx context.Context) prometheus.Labels {
	if of := trace.SpanContextFromContext(ctx); of.IsSampled() {
		return prometheus.Labels{"trace_id": of.TraceID().String()}
	}
	return nil
}
