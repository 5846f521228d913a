package engine_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/ingest"
)

// TestQueryCores: the answer of a query over many series, which are read in many batches, is the same on one core and on four: floats,
// histograms, open chunks and those of the store. The memory of a batch is used again.
func TestQueryCores(t *testing.T) {
	const size, samples, step = 300, 240, 15_000
	c := newClock(someTime)
	f := openOn(t, buffered{openEmbedded(t, c)}, c, func(cfg *engine.Config) { cfg.BatchBytes = 128 << 10 })
	var batch []ingest.Series
	for i := range size {
		s := ingest.Series{Labels: labels.FromStrings("__name__", "a", "group", fmt.Sprint(i%7), "series", fmt.Sprint(i))}
		for n := range samples {
			at := int64(someTime) + int64(n*step)
			if i%50 == 0 {
				s.Histograms = append(s.Histograms, ingest.Histogram{T: at, H: tsdbutil.GenerateTestHistogram(int64(n))})
				continue
			}
			s.Samples = append(s.Samples, ingest.Sample{T: at, V: float64(n*i) / 7})
		}
		batch = append(batch, s)
	}
	f.append(t, batch...)
	from, to := time.UnixMilli(someTime+600_000), time.UnixMilli(someTime+samples*step)
	for _, expr := range []string{"sum by (group) (rate(a[5m]))", "quantile_over_time(0.9, a[10m])", "topk(3, a)", "count(a) + on() group_right() rate(a[2m])"} {
		answerOn := func(cores int) string {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
			found, warnings := runQuery(t, t.Context(), eval.New(queryOptions(), eval.NewMemory(0, 0)), f.Engine, expr, from, to, 20*time.Second)
			return fmt.Sprint(found, textsOf(warnings))
		}
		if one, four := answerOn(1), answerOn(4); one != four || len(one) < 1000 {
			t.Errorf("%s\non one core %.500s\non four %.500s", expr, one, four)
		}
	}
	if n := f.counter(t, "adapter_engine_read_batches_total", "result", "read"); n < 50 {
		t.Errorf("%v batches are read", n)
	}
	if len(f.store.scans(bucketstore.Metric)) == 0 {
		t.Error("nothing is read from the store")
	}
}
