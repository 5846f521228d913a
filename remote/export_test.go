package remote

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series/cell"
)

// CheckAnswerBytes says whether an answer in one block may have n bytes.
func CheckAnswerBytes(maxSamples, n int) error {
	return (&samplesEncoder{maxSamples: maxSamples}).checkBytes(n)
}

// DescribeSeries writes all that a sender said of a series, bit for bit.
func DescribeSeries(s engine.Series) string {
	var b strings.Builder
	b.WriteString(s.Labels.String())
	for _, p := range s.Samples {
		fmt.Fprintf(&b, " %d:%x", p.T, math.Float64bits(p.V))
		if p.ST != 0 {
			fmt.Fprintf(&b, " since %d", p.ST)
		}
	}
	for _, h := range s.Histograms {
		fmt.Fprintf(&b, " %d:%x", h.T, cell.Append(nil, cell.Value{Start: h.ST, Histogram: h.H, FloatHistogram: h.FH}))
	}
	for _, x := range s.Exemplars {
		fmt.Fprintf(&b, " exemplar %s %d:%x", x.Labels, x.Ts, math.Float64bits(x.Value))
	}
	return b.String()
}

// IdleStore is a Store whose INDEX and CURRENT take everything and hold nothing.
type IdleStore struct{ bucketstore.Store }

// Apply implements bucketstore.Store.
func (s IdleStore) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	if table == bucketstore.Index || table == bucketstore.Current {
		return nil
	}
	return s.Store.Apply(ctx, table, muts)
}

// IdleAppender counts samples and forgets them. Its references are those of
// another.
type IdleAppender struct {
	bucketstore.Appender
	Samples int
}

// Append implements bucketstore.Appender.
func (a *IdleAppender) Append(_ context.Context, samples []bucketstore.Sample) error {
	a.Samples += len(samples)
	return nil
}
