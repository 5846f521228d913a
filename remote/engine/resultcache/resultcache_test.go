package resultcache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/scope"
)

const mib = 1 << 20

// TestEvaluated: of queries that move on, only what is new is evaluated.
func TestEvaluated(t *testing.T) {
	const qs = "sum by (job) (rate(x_total[5m]))"
	type query struct{ start, end, step int64 }
	for name, c := range map[string]struct {
		now  time.Duration // since the epoch, if it is not a day
		sent []query
		want []string
	}{
		"the same":                              {sent: []query{{600, 3000, 10}, {600, 3000, 10}}, want: []string{"600-3000", ""}},
		"later":                                 {sent: []query{{600, 3000, 10}, {900, 3300, 10}, {1200, 3600, 10}}, want: []string{"600-3000", "3010-3300", "3310-3600"}},
		"earlier":                               {sent: []query{{900, 3000, 10}, {600, 2700, 10}, {600, 3000, 10}}, want: []string{"900-3000", "600-890", ""}},
		"wider":                                 {sent: []query{{1200, 1500, 10}, {900, 1800, 10}, {900, 1800, 10}}, want: []string{"1200-1500", "900-1190 1510-1800", ""}},
		"an end between steps":                  {sent: []query{{600, 3005, 10}, {600, 3014, 10}}, want: []string{"600-3005", "3010-3010"}}, // with the last step alone
		"one step":                              {sent: []query{{600, 600, 10}, {600, 600, 10}}, want: []string{"600-600", "600-600"}},
		"a coarser step":                        {sent: []query{{600, 3000, 10}, {600, 3000, 20}, {600, 3000, 20}}, want: []string{"600-3000", "", ""}},
		"a coarser step, and more":              {sent: []query{{1200, 1800, 10}, {600, 3000, 20}, {600, 3000, 20}}, want: []string{"1200-1800", "600-1180 1820-3000", ""}},
		"a coarser step of another phase":       {sent: []query{{600, 3000, 300}, {900, 3300, 600}, {900, 3000, 450}}, want: []string{"600-3000", "3300-3300", "900-3000"}},
		"a step that is no multiple":            {sent: []query{{600, 3000, 20}, {600, 3000, 30}}, want: []string{"600-3000", "600-3000"}},
		"a finer step":                          {sent: []query{{600, 3000, 20}, {600, 3000, 10}}, want: []string{"600-3000", "600-3000"}},
		"the finer of two that has more":        {sent: []query{{1200, 1800, 10}, {600, 2400, 15}, {600, 3000, 30}}, want: []string{"1200-1800", "600-2400", "2430-3000"}},
		"another phase, not cached":             {sent: []query{{603, 3000, 10}, {603, 3000, 10}}, want: []string{"603-3000", "603-3000"}},
		"another phase of a quarter of an hour": {sent: []query{{900, 3500, 1000}, {900, 2900, 1000}}, want: []string{"900-3500", ""}},
		"parts of one block":                    {sent: []query{{20, 100, 10}, {500, 600, 10}, {500, 600, 10}, {20, 100, 10}}, want: []string{"20-100", "500-600", "", "20-100"}},
		"not closed yet":                        {now: 3600 * time.Second, sent: []query{{600, 3600, 10}, {600, 3600, 10}}, want: []string{"600-3600", "3010-3600"}},
		"nothing closed":                        {now: 600 * time.Second, sent: []query{{600, 3600, 10}, {600, 3600, 10}}, want: []string{"600-3600", "600-3600"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, mib)
			if c.now > 0 {
				f.now = time.UnixMilli(c.now.Milliseconds())
			}
			for i, q := range c.sent {
				if got := f.query(qs, q.start, q.end, q.step); got != c.want[i] {
					t.Errorf("query %d: evaluated %q, want %q", i, got, c.want[i])
				}
			}
		})
	}
}

// TestCoarser: answers from the steps of finer queries are those of an evaluation, also when samples are written. Series that begin, end and
// pause come and go between the coarse steps.
func TestCoarser(t *testing.T) {
	f := newFixture(t, mib)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range int64(20) {
		ls := labels.FromStrings("__name__", "z", "n", fmt.Sprint(i))
		for at := rng.Int64N(3000); at < 6000; at += 10 + rng.Int64N(1+40*i) {
			f.store.write(ls, at*second, rng.Float64())
		}
	}
	saved := 0
	for i := range 400 {
		step := []int64{10, 20, 30, 60, 120, 240}[rng.IntN(6)]
		start := step * rng.Int64N(3000/step)
		qs := []string{"z", "sum(z)", "max_over_time(z[1m])", `count(z > 0.5)`}[rng.IntN(4)]
		if f.query(qs, start, start+step*(1+rng.Int64N(40)), step) == "" {
			saved++
		}
		if i%20 == 0 {
			f.write(labels.FromStrings("__name__", "z", "n", "0"), rng.Int64N(6000)*second+500, rng.Float64())
		}
	}
	if saved < 40 {
		t.Errorf("%d of 400 queries are answered from the cache", saved)
	}
}

// TestCut: steps that read what is cut are evaluated anew, and not cached.
func TestCut(t *testing.T) {
	cut := int64(0)
	f := newFixture(t, mib, func(c *resultcache.Config) {
		c.Cut = func(now time.Time) int64 { return min(cut, now.UnixMilli()) }
	})
	const qs = "rate(x_total[5m])"
	for _, step := range []struct {
		cut  int64
		want string
	}{
		{0, "600-3000"},
		{0, ""},
		{300*second + 1, ""}, // the first that the first step reads
		{300*second + 2, "600-600"},
		{1000 * second, "600-1290"},
		{1000 * second, "600-1290"},
		{3000 * second, "600-3000"},
	} {
		cut = step.cut
		if got := f.query(qs, 600, 3000, 10); got != step.want {
			t.Errorf("cut at %d: evaluated %q, want %q", cut, got, step.want)
		}
	}
}

// TestManyGaps: with many blocks missing between others a query is evaluated as a whole.
func TestManyGaps(t *testing.T) {
	f := newFixture(t, mib)
	for i := range int64(12) {
		if got := f.query("x_total", i*256+10, i*256+50, 1); got == "" {
			t.Error("nothing evaluated")
		}
	}
	if got := f.query("x_total", 0, 3000, 1); got != "0-3000" {
		t.Errorf("evaluated %q", got)
	}
	if got := f.query("x_total", 0, 3000, 1); got != "" {
		t.Errorf("then evaluated %q", got)
	}
}

// TestExpressions: expressions whose steps do not depend on each other are cached.
func TestExpressions(t *testing.T) {
	for qs, want := range map[string]bool{
		"x_total": true,
		"sum by (job) (rate(x_total[5m] offset 10m))":      true,
		"x_total @ 100 + on(job) x_total":                  true,
		`x_total offset -1m`:                               true,
		`sum({job="a"})`:                                   true,
		"topk(1, rate(x_total[1m]))":                       true,
		"sum(sum(x_total))":                                true,
		"count(sum by (job) (x_total))":                    true,
		"sum(sum by (job) (x_total) * on(job) x_total)":    true,
		"max_over_time(sum(x_total)[10m:1m])":              true,
		`label_replace(x_total, "x", "$1", "job", "(.*)")`: true,
		"quantile(0.5, x_total)":                           true,
		"topk(-(1), x_total)":                              true,
		"absent(x_total) or absent_over_time(nothing[1m])": true,
		"1":                          false,
		"time()":                     false,
		"x_total @ start()":          false,
		"x_total @ end()":            false,
		"x_total + start()":          false,
		"x_total * range()":          false,
		"x_total * step()":           false,
		"rate(x_total[range()])":     false,
		"rate(x_total[5m+1m])":       false,
		"x_total offset step()":      false,
		"sort(x_total)":              false, // a warning, but not at one step
		"info(x_total)":              false,
		"rate(x_total[5m] anchored)": false,
		`rate({job="a"}[5m])`:        false,
		`rate({__name__=~"x_total|y_total"}[5m])`:                               false,
		"max(sum by (job) (x_total))":                                           false,
		"sum(-(sum without (job) (x_total)))":                                   false,
		"topk(1, sum by (job) (rate(x_total[5m])))":                             false,
		"sum(max_over_time(sum by (job) (x_total)[5m:1m]))":                     false,
		`sum(label_replace(sum by (job) (x_total), "x", "$1", "job", "(.*)"))`:  false,
		"topk(scalar(x_total), x_total)":                                        false,
		"sum_over_time((x_total or y_total)[5m:1m])":                            false,
		"sum_over_time(x_total[5m:1m] @ end())":                                 false,
		`sum_over_time(label_replace(x_total, "__name__", "y", "", "")[5m:1m])`: false,
		"rate(gauge[5m])": true, // without series there is no warning
	} {
		t.Run(qs, func(t *testing.T) {
			f := newFixture(t, mib)
			f.query(qs, 600, 1200, 10)
			if got := f.query(qs, 600, 1200, 10) == ""; got != want {
				t.Errorf("cached: %t", got)
			}
		})
	}
}

// TestWarnings: an answer of which there is more to tell is not cached, and one that has steps from the
// cache is evaluated in full to tell it.
func TestWarnings(t *testing.T) {
	f := newFixture(t, mib)
	for i := range int64(100) {
		f.store.write(labels.FromStrings("__name__", "gauge"), 1000*second+i*10*second, float64(i))
	}
	const qs = "rate(gauge[1m])"
	for _, c := range []struct {
		start, end int64
		want       string
	}{
		{600, 900, "600-900"}, {600, 900, ""}, {600, 1200, "910-1200 600-1200"}, {1100, 1200, "1100-1200"}, {1100, 1200, "1100-1200"}, {600, 900, ""},
	} {
		if got := f.query(qs, c.start, c.end, 10); got != c.want {
			t.Errorf("%d to %d: evaluated %q, want %q", c.start, c.end, got, c.want)
		}
	}
}

// TestSeriesLimit: an answer that a limit does not cut is cached, and what is cached answers with any limit that does not cut it. Else
// all steps are evaluated, which holds no more series than the limit.
func TestSeriesLimit(t *testing.T) {
	for _, qs := range []string{"x_total", "sum by (job) (x_total)"} {
		f := newFixture(t, mib)
		for i := range int64(20) { // the first in order, and later than the others
			f.store.write(labels.FromStrings("__name__", "x_total", "job", "_"), 2000*second+i*10*second, float64(i))
		}
		for _, c := range []struct {
			limit      int
			start, end int64
			want       string
		}{
			{1, 600, 900, "600-900"}, {1, 600, 900, "600-900"}, {2, 600, 900, "600-900"}, {2, 600, 900, ""}, {1, 600, 900, "600-900"},
			{2, 600, 2200, "910-2200 600-2200"}, {3, 600, 2200, "910-2200"}, {3, 600, 2200, ""}, {1, 600, 2200, "600-2200"},
			{2, 600, 1900, ""}, {2, 1800, 2200, "1800-2200"}, {1, 600, 1210, "600-1210"},
		} {
			if got := f.limited(qs, c.limit, c.start, c.end, 10); got != c.want {
				t.Errorf("%s, limit %d, %d to %d: evaluated %q, want %q", qs, c.limit, c.start, c.end, got, c.want)
			}
		}
	}
}

// TestOrderOfGroups: the groups of an aggregation are in the order of their first series, and sums of
// them differ with the order. The answer must be that of the whole range.
func TestOrderOfGroups(t *testing.T) {
	f := newFixture(t, mib)
	// In the second half group 1 has only its last series, which is behind those of the others.
	for name, halves := range map[string][2]map[string]float64{
		"y": {{"a1": 1, "b2": 1, "c3": 1}, {"b2": 1, "c3": 1, "d1": 1}},
		"z": {{"a1": 1, "b2": 1, "c3": 1}, {"b2": 1e308, "c3": 1e308, "d1": -1e308}},
	} {
		for half, series := range halves {
			for text, v := range series {
				f.store.write(labels.FromStrings("__name__", name, "a", text[:1], "group", text[1:]), int64(1000+half*1000)*second, v)
			}
		}
	}
	for _, qs := range []string{"topk(1, sum by (group) (y))", "sum(sum by (group) (z))", "avg(sum without (a) (z))", "sum(-(sum by (group) (z)))"} {
		f.query(qs, 1000, 1290, 10)
		f.query(qs, 2000, 2200, 10)
		f.query(qs, 1000, 2200, 10)
	}
}

// TestSameWithoutName: a function of a range puts series together that are the same without their names, unless they are at the same steps.
func TestSameWithoutName(t *testing.T) {
	f := newFixture(t, mib)
	for i := range int64(20) {
		f.store.write(labels.FromStrings("__name__", "y_total"), 1000*second+i*10*second, 1)
		f.store.write(labels.FromStrings("__name__", "z_total"), 2000*second+i*10*second, 1)
	}
	for _, qs := range []string{`rate({__name__=~"y_total|z_total"}[1m])`, "sum_over_time((y_total or z_total)[1m:10s])"} {
		f.query(qs, 1000, 1200, 10)
		f.query(qs, 2000, 2200, 10)
		f.query(qs, 1000, 2200, 10)
		if got := f.answer(t.Context(), f.engine, qs, 1000, 2200, 10); strings.Contains(got, "same labelset") {
			t.Errorf("%s: %s", qs, got)
		}
	}
	f.store.write(labels.FromStrings("__name__", "y_total"), 2000*second, 1)
	f.store.write(labels.FromStrings("__name__", "y_total"), 2010*second, 1)
	qs := `rate({__name__=~"y_total|z_total"}[1m])`
	f.query(qs, 1000, 1200, 10)
	f.query(qs, 1000, 2200, 10)
	if got := f.answer(t.Context(), f.engine, qs, 1000, 2200, 10); !strings.Contains(got, "same labelset") {
		t.Errorf("at the same steps: %s", got)
	}
}

// TestWritten: a late sample drops what has read its time, and nothing else.
func TestWritten(t *testing.T) {
	ls := labels.FromStrings("__name__", "x_total", "job", "late")
	for name, c := range map[string]struct {
		qs    string
		write int64 // in seconds
		want  string
	}{
		"before all that is read":      {"rate(x_total[1m])", 539, ""},
		"where windows begin":          {"rate(x_total[1m])", 540, ""},
		"in the first window":          {"rate(x_total[1m])", 541, "600-1200"},
		"at the last step":             {"rate(x_total[1m])", 1200, "600-1200"},
		"behind it":                    {"rate(x_total[1m])", 1201, ""},
		"in the lookback":              {"x_total", 301, "600-1200"},
		"before an offset":             {"x_total offset 5m", 901, ""},
		"with an offset":               {"x_total offset 5m", 900, "600-1200"},
		"with an offset to the future": {"x_total offset -5m", 1500, "600-1200"},
		"at a fixed time":              {"x_total - on(job) x_total @ 3000", 2999, "600-1200"},
		"in a subquery":                {"max_over_time(x_total[10m:1m])", 100, "600-1200"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, mib)
			f.query(c.qs, 600, 1200, 10)
			if got := f.query(c.qs, 600, 1200, 10); got != "" {
				t.Fatalf("before the write: evaluated %q", got)
			}
			f.write(ls, c.write*second, 1)
			if got := f.query(c.qs, 600, 1200, 10); got != c.want {
				t.Errorf("evaluated %q, want %q", got, c.want)
			}
			want := 0.0
			if c.want != "" {
				want = 1
			}
			if got := f.metric("adapter_results_cache_dropped_blocks_total", "written"); got != want {
				t.Errorf("%g blocks dropped", got)
			}
		})
	}
}

// TestTenants: answers of some tenants are not those of others, and a write of a tenant drops those of all that ask it.
func TestTenants(t *testing.T) {
	f := newFixture(t, mib)
	evaluated := func(tenants string) bool {
		f.direct.executed = nil
		f.answer(scope.With(t.Context(), strings.Split(tenants, "|")), f.engine, "x_total", 600, 1200, 10)
		return len(f.direct.executed) > 0
	}
	asked := []string{"", "a", "a|b", "b", "ab"}
	for _, tenants := range asked {
		if first, again := evaluated(tenants), evaluated(tenants); !first || again {
			t.Errorf("%q is evaluated: %t, and again: %t", tenants, first, again)
		}
	}
	for tenant, want := range map[string]string{"a": "a a|b", "b": "a|b b", "c": ""} {
		f.cache.Written(tenant, []bucketstore.Sample{{T: 700 * second}})
		var dropped []string
		for _, tenants := range asked {
			if evaluated(tenants) {
				dropped = append(dropped, tenants)
			}
		}
		if got := strings.Join(dropped, " "); got != want {
			t.Errorf("a sample of %s drops %q, want %q", tenant, got, want)
		}
	}
}

// TestWrittenBlock: a late sample drops one block of a long query; the others stay.
func TestWrittenBlock(t *testing.T) {
	f := newFixture(t, mib)
	f.query("x_total", 0, 3500, 5)
	f.write(labels.FromStrings("__name__", "x_total", "job", "c"), 3000*second, 1)
	if got := f.query("x_total", 0, 3500, 5); got != "2560-3500" { // steps 512 to 639, and what is left of the next ones
		t.Errorf("evaluated %q", got)
	}
	// A clock that goes back changes nothing, and one that has gone back lets nothing new in.
	f.now = time.UnixMilli(2000 * second)
	if got := f.query("x_total", 0, 3500, 5); got != "1405-3500" {
		t.Errorf("with an earlier clock: evaluated %q", got)
	}
}

// TestDrop: Drop empties a cache, and spoils what is evaluated meanwhile.
func TestDrop(t *testing.T) {
	f := newFixture(t, mib)
	f.query("x_total", 600, 1200, 10)
	f.store.onQuery = f.cache.Drop
	for range 2 {
		if got := f.query("x_total", 600, 1800, 10); got == "" {
			t.Error("answered from the cache")
		}
	}
	f.store.onQuery = nil
	if held := f.metric("adapter_results_cache_bytes"); held != 0 {
		t.Errorf("%g bytes held", held)
	}
}

// TestConfirm: a cache that is not confirmed to be told of all is neither used nor filled, and one that is, is.
func TestConfirm(t *testing.T) {
	confirmed := false
	f := newFixture(t, mib, func(cfg *resultcache.Config) { cfg.Confirm = func(context.Context) bool { return confirmed } })
	for _, step := range []struct {
		confirmed bool
		want      string
	}{{false, "600-1200"}, {true, "600-1200"}, {true, ""}, {false, "600-1200"}, {true, ""}} {
		confirmed = step.confirmed
		if got := f.query("x_total", 600, 1200, 10); got != step.want {
			t.Errorf("confirmed: %t: evaluated %q, want %q", confirmed, got, step.want)
		}
	}
	f.cache.WrittenBetween("", 1100*second, 1110*second)
	if got := f.query("x_total", 600, 1200, 10); got != "600-1200" {
		t.Errorf("written between: evaluated %q", got)
	}
}

// TestDropEvery: what is cached goes at an interval.
func TestDropEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, mib)
		ctx, stop := context.WithCancel(t.Context())
		go f.cache.DropEvery(ctx, time.Minute)
		for _, want := range []string{"600-1200", "", "600-1200", ""} {
			if got := f.query("x_total", 600, 1200, 10); got != want {
				t.Errorf("evaluated %q, want %q", got, want)
			}
			time.Sleep(31 * time.Second)
			synctest.Wait()
		}
		stop()
	})
}

// TestWrittenWhileEvaluated: the result of an evaluation that may have missed a sample is not cached.
func TestWrittenWhileEvaluated(t *testing.T) {
	for name, c := range map[string]struct {
		written []int64 // in seconds
		want    string
	}{
		"into what is read":       {[]int64{1000}, "600-1200"},
		"elsewhere":               {[]int64{2500}, ""},
		"into another block, too": {[]int64{3000, 1000}, "600-1200"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, mib)
			f.query("x_total", 3000, 3400, 10)
			ls := labels.FromStrings("__name__", "x_total", "job", "late")
			f.store.onQuery = func() { // it has read
				f.store.onQuery = nil
				for _, at := range c.written {
					f.write(ls, at*second, 1)
				}
			}
			f.answer(t.Context(), f.engine, "x_total", 600, 1200, 10)
			if got := f.query("x_total", 600, 1200, 10); got != c.want {
				t.Errorf("evaluated %q, want %q", got, c.want)
			}
		})
	}
}

// TestWrittenWhileExtended: a block that a sample was written into is not extended, even if there is a
// new one by then.
func TestWrittenWhileExtended(t *testing.T) {
	f := newFixture(t, mib)
	f.query("x_total", 600, 1000, 10)
	f.store.onQuery = func() { // of the steps behind the block, which read from 710 on
		f.store.onQuery = nil
		f.write(labels.FromStrings("__name__", "x_total", "job", "late"), 650*second, 1)
		f.answer(t.Context(), f.engine, "x_total", 600, 1000, 10)
	}
	f.answer(t.Context(), f.engine, "x_total", 600, 1200, 10)
	if got := f.query("x_total", 600, 1200, 10); got != "1010-1200" {
		t.Errorf("evaluated %q", got)
	}
}

// TestConcurrent: every answer has the samples that were written before the query, while others are
// written and read.
func TestConcurrent(t *testing.T) {
	f := newFixture(t, 64<<10)
	ls := labels.FromStrings("__name__", "counter")
	var written [8]atomic.Int64 // by time, in hundreds of seconds
	var running sync.WaitGroup
	const rounds = 2000
	for at := range written {
		running.Go(func() {
			for v := range int64(rounds) {
				f.write(ls, int64(at+1)*100*second, float64(v+1))
				written[at].Store(v + 1)
			}
		})
	}
	for reader := range 3 {
		running.Go(func() {
			for i := range rounds {
				var least [len(written)]int64
				for at := range written {
					least[at] = written[at].Load()
				}
				first := int64((reader+i)%4 + 1)
				q, err := f.engine.NewRangeQuery(t.Context(), f.store, nil, "last_over_time(counter[1m])", time.Unix(first*100, 0), time.Unix(800, 0), 10*time.Second)
				if err != nil {
					t.Error(err)
					return
				}
				res := q.Exec(t.Context())
				matrix, err := res.Matrix()
				if err != nil {
					t.Error(err)
					return
				}
				for _, s := range matrix {
					for _, p := range s.Floats {
						if at := (p.T+50*second)/(100*second) - 1; p.T%(100*second) == 0 && p.F < float64(least[at]) {
							t.Errorf("%g at %d, after %d was written", p.F, p.T, least[at])
						}
					}
				}
				q.Close()
			}
		})
	}
	running.Wait()
	f.query("last_over_time(counter[1m])", 100, 800, 10)
	if got := f.query("last_over_time(counter[1m])", 100, 800, 10); got != "" {
		t.Errorf("when nothing is written: evaluated %q", got)
	}
}

// TestBytes: a cache holds no more than it may, in fact, and forgets what was not used for longest.
func TestBytes(t *testing.T) {
	const limit = 4 * mib
	f := newFixture(t, limit)
	for i := range 50 {
		for at := range 360 {
			f.store.write(labels.FromStrings("__name__", "y", "pod", fmt.Sprintf("pod-%040d", i), "namespace", "default"), int64(at)*10*second, 1)
		}
	}
	send := func(i int) {
		f.answer(t.Context(), f.engine, fmt.Sprintf(`y + 0 * %d`, i), 600, 1800, 10)
	}
	send(1000)
	before := heapBytes()
	for i := range 100 {
		send(i)
		send(1000)
	}
	held := f.metric("adapter_results_cache_bytes")
	if held > limit || held < limit*0.9 {
		t.Errorf("%g bytes held", held)
	}
	if grown := float64(heapBytes()) - float64(before); grown > limit*1.1 {
		t.Errorf("%g bytes held, of which the process takes %g", held, grown)
	}
	if dropped := f.metric("adapter_results_cache_dropped_blocks_total", "full"); dropped == 0 {
		t.Error("nothing dropped")
	}
	for qs, want := range map[string]string{"y + 0 * 1000": "", "y + 0 * 99": "", "y + 0 * 0": "600-1800"} {
		if got := f.query(qs, 600, 1800, 10); got != want {
			t.Errorf("%s: evaluated %q, want %q", qs, got, want)
		}
	}
	runtime.KeepAlive(f)
}

// heapBytes returns how many bytes live on the heap.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLargeBlock: a result that is larger than the cache is not cached.
func TestLargeBlock(t *testing.T) {
	f := newFixture(t, 1000)
	f.query("x_total", 600, 1800, 10)
	if got := f.query("x_total", 600, 1800, 10); got != "600-1800" {
		t.Errorf("evaluated %q", got)
	}
}

// TestLimits: an answer from the cache is within the limits of any other.
func TestLimits(t *testing.T) {
	few := func(cfg *resultcache.Config) { cfg.Options.MaxSamples = 500 }
	little := func(cfg *resultcache.Config) { cfg.Memory = eval.NewMemory(8000, 0) }
	for name, c := range map[string]struct {
		change func(*resultcache.Config)
		want   error
	}{
		"samples": {few, promql.ErrTooManySamples("query execution")},
		"memory":  {little, eval.ErrMemory},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, mib, c.change)
			var err error
			for start := int64(600); start < 3600 && err == nil; start += 1000 {
				for _, from := range []int64{start, 600} { // in parts, then all that is there
					q, made := f.engine.NewRangeQuery(t.Context(), f.store, nil, "x_total", time.Unix(from, 0), time.Unix(start+990, 0), 10*time.Second)
					if made != nil {
						t.Fatal(made)
					}
					if res := q.Exec(t.Context()); res.Err != nil {
						err = res.Err
					}
					q.Close()
				}
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestWithoutCache: a client can ask for an evaluation, and for other options.
func TestWithoutCache(t *testing.T) {
	f := newFixture(t, mib)
	f.query("x_total", 600, 1200, 10)
	f.direct.executed = nil
	f.answer(resultcache.WithoutCache(t.Context()), f.engine, "x_total", 600, 1200, 10)
	if got := strings.Join(f.direct.executed, " "); got != "600-1200" {
		t.Errorf("evaluated %q", got)
	}
	f.store.write(labels.FromStrings("__name__", "x_total", "job", "old"), 500*second, 1) // the cache is not told
	for lookback, want := range map[time.Duration]int{0: 2, 5 * time.Minute: 2, 6 * time.Minute: 3} {
		q, err := f.engine.NewRangeQuery(t.Context(), f.store, promql.NewPrometheusQueryOpts(false, lookback, nil), "x_total", time.Unix(600, 0), time.Unix(1200, 0), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if matrix, err := q.Exec(t.Context()).Matrix(); len(matrix) != want {
			t.Errorf("lookback %s: %d series, %v", lookback, len(matrix), err)
		}
		q.Close()
	}
}

// TestSources: blocks know what the evaluations that they are from have read, and answers that are made of them say so.
func TestSources(t *testing.T) {
	var read, reused uint8
	f := newFixture(t, mib, func(c *resultcache.Config) {
		c.Sources = func(context.Context) uint8 { return read }
		c.Reuse = func(_ context.Context, sources uint8) { reused |= sources }
	})
	for i, c := range []struct {
		start, end int64
		// read is what an evaluation reads, want what cached results are from.
		read, want uint8
	}{
		{100, 600, 1, 0},
		{100, 600, 8, 1},      // nothing is evaluated
		{100, 1200, 2, 1},     // in the same block
		{700, 1200, 8, 1 | 2}, // which now is from both
		{1300, 1800, 4, 0},
		{100, 1800, 8, 1 | 2 | 4}, // evaluates the steps between, in both blocks
		{1300, 1800, 16, 4 | 8},
		{100, 600, 16, 1 | 2 | 8},
	} {
		read, reused = c.read, 0
		f.query("x_total", c.start, c.end, 10)
		if reused != c.want {
			t.Errorf("query %d: from %b, want %b", i, reused, c.want)
		}
	}
}

// TestCoverage: a cache says what it has of a query, without counting that as use.
func TestCoverage(t *testing.T) {
	const qs = "sum by (job) (rate(x_total[5m]))"
	f := newFixture(t, mib)
	f.now = time.Unix(3600, 0)
	ask := func(qs string, start, end, step int64) resultcache.Coverage {
		return f.engine.Coverage(t.Context(), qs, time.Unix(start, 0), time.Unix(end, 0), time.Duration(step)*time.Second)
	}
	for _, c := range []struct {
		what             string
		start, end, step int64
		want             resultcache.Coverage
	}{
		{"never asked", 600, 3600, 10, resultcache.Coverage{Steps: 301, Closed: 241}},
		{"after the first half of it", 600, 3600, 10, resultcache.Coverage{Steps: 301, Closed: 241, Cached: 121}},
		{"of it only that half", 600, 1800, 10, resultcache.Coverage{Steps: 121, Closed: 121, Cached: 121}},
		{"with twice the step", 600, 3600, 20, resultcache.Coverage{Steps: 151, Closed: 121, Cached: 61}},
		{"with another step", 600, 3600, 15, resultcache.Coverage{Steps: 201, Closed: 161}},
		{"too young", 3500, 3600, 10, resultcache.Coverage{Steps: 11}},
	} {
		if got := ask(qs, c.start, c.end, c.step); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		f.query(qs, 600, 1800, 10)
	}
	if got := ask(qs, 600, 1800, 10); got.Cached != 121 {
		t.Errorf("%+v", got)
	}
	f.write(labels.FromStrings("__name__", "late"), 700*second, 1)
	if got := ask(qs, 600, 1800, 10); got != (resultcache.Coverage{Steps: 121, Closed: 121, Cached: 53}) { // a block of 128 steps is gone
		t.Errorf("after a late sample %+v", got)
	}

	// With many gaps a query is evaluated as a whole.
	f = newFixture(t, mib)
	for i := range int64(12) {
		f.query("x_total", i*256+10, i*256+50, 1)
	}
	if got := ask("x_total", 0, 3000, 1); got != (resultcache.Coverage{Steps: 3001, Closed: 3001}) {
		t.Errorf("with many gaps %+v", got)
	}

	// What was used last stays, whatever was looked at since.
	f = newFixture(t, 7500)
	f.query("x_total", 0, 500, 12)
	f.query("x_total", 0, 500, 5)
	before := ask("x_total", 0, 500, 5)
	ask("x_total", 0, 500, 12)
	f.query("x_total", 0, 500, 18)
	if first, second := ask("x_total", 0, 500, 12), ask("x_total", 0, 500, 5); before.Cached == 0 || first.Cached != 0 || second.Cached != before.Cached {
		t.Errorf("of the first query %+v, of the second %+v, before %+v", first, second, before)
	}
}

// TestCoverageReasons: what is not cached has a reason, and what is has none.
func TestCoverageReasons(t *testing.T) {
	f := newFixture(t, mib)
	ask := func(ctx context.Context, qs string, start, end int64, step time.Duration) string {
		return f.engine.Coverage(ctx, qs, time.UnixMilli(start), time.UnixMilli(end), step).Why
	}
	for qs, want := range map[string]string{
		"x_total":                             "",
		"1":                                   "reads no series",
		"x_total @ start()":                   "@ start()",
		"max_over_time(x_total[5m:] @ end())": "@ start()",
		"rate(x_total[step()])":               "duration",
		"x_total offset step()":               "duration",
		"max_over_time(x_total[5m:step()])":   "duration",
		"rate(x_total[5m] anchored)":          "around the range",
		`rate({job="a"}[5m])`:                 "does not name one metric",
		`max_over_time({job="a"}[5m:])`:       "several metrics",
		"sort(x_total)":                       "sort()",
		"topk(scalar(x_total), x_total)":      "topk is not a number",
		"sum(sum by (job) (x_total))":         "sum of groups",
		"x_total + fill(0) x_total":           "fill",
		"max(":                                "parse error",
	} {
		if got := ask(t.Context(), qs, 0, 60_000, time.Second); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", qs, got, want)
		}
	}
	for _, c := range []struct {
		start, end int64
		step       time.Duration
		want       string
	}{
		{0, 60_000, time.Second + time.Nanosecond, "milliseconds"},
		{0, 60_000, 0, "milliseconds"},
		{-1, 60_000, time.Second, "1970"},
		{0, 999, time.Second, "one step"},
		{1, 60_000, time.Second, "15 minutes"},
	} {
		if got := ask(t.Context(), "x_total", c.start, c.end, c.step); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := ask(resultcache.WithoutCache(t.Context()), "x_total", 0, 60_000, time.Second); !strings.Contains(got, "without cached results") {
		t.Errorf("asked for without: %q", got)
	}
	f = newFixture(t, mib, func(cfg *resultcache.Config) { cfg.Options.UseStartTimestamps = true })
	if got := ask(t.Context(), "x_total", 0, 60_000, time.Second); !strings.Contains(got, "feature") {
		t.Errorf("with a feature: %q", got)
	}
}

// TestOptions: with features in which steps depend on each other nothing is cached.
func TestOptions(t *testing.T) {
	for _, change := range []func(*resultcache.Config){
		func(cfg *resultcache.Config) { cfg.Options.EnableDelayedNameRemoval = true },
		func(cfg *resultcache.Config) { cfg.Options.UseStartTimestamps = true },
	} {
		f := newFixture(t, mib, change)
		f.query("x_total", 600, 1200, 10)
		if got := f.query("x_total", 600, 1200, 10); got != "600-1200" {
			t.Errorf("evaluated %q", got)
		}
	}
}

// TestStats: statistics tell of what was evaluated.
func TestStats(t *testing.T) {
	f := newFixture(t, mib)
	f.query("x_total", 600, 1200, 10)
	opts := promql.NewPrometheusQueryOpts(true, 0, nil)
	q, err := f.engine.NewRangeQuery(t.Context(), f.store, opts, "x_total", time.Unix(600, 0), time.Unix(1290, 0), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if res := q.Exec(t.Context()); res.Err != nil {
		t.Fatal(res.Err)
	}
	s := q.Stats()
	if got := *s.Samples.TotalSamplesPerStepMap(); len(got) != 70 || got[1200*second] != 0 || got[1210*second] != 2 || got[1290*second] != 2 {
		t.Errorf("per step: %v", got)
	}
	if s.Samples.TotalSamples != 18 || s.Samples.SamplesRead != 18 || s.Samples.PeakSamples != 140 {
		t.Errorf("%d samples, %d read, at most %d held", s.Samples.TotalSamples, s.Samples.SamplesRead, s.Samples.PeakSamples)
	}
	if !strings.Contains(s.Timers.String(), "Exec total time") || q.String() != "x_total" || q.Statement() == nil {
		t.Errorf("%s, %s, %s", s.Timers, q, q.Statement())
	}
	if hits, misses := f.metric("adapter_results_cache_steps_total", "hit"), f.metric("adapter_results_cache_steps_total", "miss"); hits != 61 || misses != 61+9 {
		t.Errorf("%g hits, %g misses", hits, misses)
	}
}

// TestWrittenIsFree: a write behind all that is cached takes no lock and no memory.
func TestWrittenIsFree(t *testing.T) {
	f := newFixture(t, mib)
	f.query("x_total", 600, 1200, 10)
	samples := []bucketstore.Sample{{T: 1201 * second}, {T: 10}}
	if n := testing.AllocsPerRun(100, func() { f.cache.Written("", samples) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
	if got := f.query("x_total", 600, 1200, 10); got != "" {
		t.Errorf("evaluated %q", got)
	}
}

// BenchmarkQuery sends one query again and again, with and without a cache, over an hour that moves on
// by a step.
func BenchmarkQuery(b *testing.B) {
	f := newFixture(b, 64*mib)
	for i := range 500 {
		ls := labels.FromStrings("__name__", "http_requests_total", "job", fmt.Sprint(i%10), "instance", fmt.Sprint(i), "code", fmt.Sprint(i%7))
		for at := range 480 {
			f.store.write(ls, int64(at)*15*second, float64(at*i))
		}
	}
	for name, qs := range map[string]string{"sum": "sum by (job) (rate(http_requests_total[5m]))", "series": "rate(http_requests_total[5m])"} {
		for engine, e := range map[string]promql.QueryEngine{"without": f.direct, "with": f.engine} {
			for sent, closed := range map[string]bool{"closed": true, "newest": false} {
				b.Run(name+"/"+engine+"/"+sent, func(b *testing.B) {
					f.now = time.UnixMilli(7200 * second)
					if closed {
						f.now = time.UnixMilli(24 * 60 * minute)
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						end := time.Unix(7200-int64(9-i%10)*15, 0)
						q, err := e.NewRangeQuery(b.Context(), f.store, nil, qs, end.Add(-time.Hour), end, 15*time.Second)
						if err != nil {
							b.Fatal(err)
						}
						if res := q.Exec(b.Context()); res.Err != nil {
							b.Fatal(res.Err)
						}
						q.Close()
					}
				})
			}
		}
	}
}
