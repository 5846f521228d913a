package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/ha"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
)

// failover is that of the tests, in milliseconds.
const failover = 30_000

// withHA turns HA on.
func withHA(cfg *engine.Config) {
	cfg.HA = ha.Config{ClusterLabel: "cluster", ReplicaLabel: "__replica__", Failover: failover * time.Millisecond}
}

// from is a sample at t that a replica of cluster c has sent: 1 from a, 2 from b,
// and so on.
func from(replica string, t int64) ingest.Series {
	return fromCluster("c", replica, t)
}

func fromCluster(cluster, replica string, t int64) ingest.Series {
	return ingest.Series{
		Labels:  labels.FromStrings("__name__", "m", "cluster", cluster, "__replica__", replica),
		Samples: []ingest.Sample{{T: t, V: float64(replica[0] - 'a' + 1)}},
	}
}

// sends appends a sample that must be acknowledged, and says whether it is
// stored.
func (f *fixture) sends(t testing.TB, s ingest.Series) bool {
	t.Helper()
	f.append(t, s)
	q := everything()
	q.Mint, q.Maxt = s.Samples[0].T, s.Samples[0].T
	for _, found := range f.collect(t, q) {
		if slices.Contains(found.Samples, s.Samples[0]) {
			return true
		}
	}
	return false
}

// wantSends fails unless the sample is acknowledged, and stored or not.
func (f *fixture) wantSends(t testing.TB, what string, s ingest.Series, stored bool) {
	t.Helper()
	if got := f.sends(t, s); got != stored {
		t.Errorf("%s: stored is %t, want %t", what, got, stored)
	}
}

// gauges returns the labels of the metrics of this name whose value is 1.
func (f *fixture) gauges(t testing.TB, name string) (found []string) {
	t.Helper()
	families, err := f.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && m.GetGauge().GetValue() == 1 {
				found = append(found, strings.Join(labelTexts(m), " "))
			}
		}
	}
	return found
}

func TestHAFlags(t *testing.T) {
	for _, tt := range []struct {
		name string
		ha   ha.Config
		want string // "" is no error
	}{
		{"off", ha.Config{}, ""},
		{"on", ha.Config{ClusterLabel: "c", ReplicaLabel: "r"}, ""},
		{"a second", ha.Config{ClusterLabel: "c", ReplicaLabel: "r", Failover: time.Second}, ""},
		{"no replica", ha.Config{ClusterLabel: "c"}, "--ha.replica-label"},
		{"no cluster", ha.Config{ReplicaLabel: "r"}, "--ha.cluster-label"},
		{"the same", ha.Config{ClusterLabel: "c", ReplicaLabel: "c"}, "two labels"},
		{"the name", ha.Config{ClusterLabel: "c", ReplicaLabel: "__name__"}, "--ha.replica-label"},
		{"too fast", ha.Config{ClusterLabel: "c", ReplicaLabel: "r", Failover: time.Millisecond}, "--ha.failover"},
		{"negative", ha.Config{ClusterLabel: "c", ReplicaLabel: "r", Failover: -time.Hour}, "--ha.failover"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			cfg := f.cfg
			cfg.HA, cfg.Registerer = tt.ha, nil
			e, err := engine.New(cfg)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// The first sender of cluster c is replica a; what each label set comes to.
func TestHALabels(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, tt := range []struct {
		name string
		sent []string
		want string // "" is not stored
		err  string // "" is not rejected
	}{
		{"elected", []string{"__name__", "m", "__replica__", "a", "cluster", "c"}, `{__name__="m", cluster="c"}`, ""},
		{"not elected", []string{"__name__", "m", "__replica__", "b", "cluster", "c"}, "", ""},
		{"another cluster", []string{"__name__", "m", "__replica__", "b", "cluster", "c2"}, `{__name__="m", cluster="c2"}`, ""},
		{"no cluster", []string{"__name__", "m", "__replica__", "b"}, `{__name__="m"}`, ""},
		{"empty cluster", []string{"__name__", "m", "__replica__", "b", "cluster", ""}, `{__name__="m"}`, ""},
		{"no replica", []string{"__name__", "m", "cluster", "c"}, `{__name__="m", cluster="c"}`, ""},
		{"empty replica", []string{"__name__", "m", "__replica__", "", "cluster", "c"}, `{__name__="m", cluster="c"}`, ""},
		{"neither", []string{"__name__", "m", "z", "1"}, `{__name__="m", z="1"}`, ""},
		{"awkward cluster", []string{"__name__", "m", "__replica__", "\x00,=\n\"", "cluster", "\x00,=\n\\\""}, `{__name__="m", cluster="\x00,=\n\\\""}`, ""},
		{"longest names", []string{"__name__", "m", "__replica__", long[1:], "cluster", long[1:]}, `{__name__="m", cluster="` + long[1:] + `"}`, ""},
		{"replica twice", []string{"__name__", "m", "__replica__", "a", "__replica__", "b", "cluster", "c"}, "", "__replica__"},
		{"empty, then not", []string{"__name__", "m", "__replica__", "", "__replica__", "a", "cluster", "c"}, `{__name__="m", cluster="c"}`, ""},
		{"cluster twice", []string{"__name__", "m", "__replica__", "a", "cluster", "c", "cluster", "d"}, "", "cluster"},
		{"no UTF-8", []string{"__name__", "m", "__replica__", "\xff", "cluster", "c"}, "", "UTF-8"},
		{"no name", []string{"__replica__", "b", "cluster", "c"}, "", "no metric name"},
		{"long cluster", []string{"__name__", "m", "__replica__", "b", "cluster", long}, "", "257 bytes"},
		{"long replica", []string{"__name__", "m", "__replica__", long, "cluster", "c"}, "", "257 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t, withHA)
			f.wantSends(t, "the first sender", from("a", someTime), true)
			var b labels.ScratchBuilder
			for i := 0; i < len(tt.sent); i += 2 {
				b.Add(tt.sent[i], tt.sent[i+1])
			}
			ls := b.Labels()
			batch := []ingest.Series{one(ls, someTime+1)}
			var rejected ingest.Rejected
			stored, err := f.Append(t.Context(), batch, &rejected)
			if err != nil {
				t.Fatal(err)
			}
			if !labels.Equal(batch[0].Labels, ls) {
				t.Errorf("the caller's labels are now %s", batch[0].Labels)
			}
			q := everything()
			q.Mint = someTime + 1
			switch found := f.collect(t, q); {
			case tt.want == "" && len(found) > 0, tt.want != "" && (len(found) != 1 || found[0].Labels.String() != tt.want):
				t.Errorf("found %swant %s", text(found), tt.want)
			}
			switch err := rejected.Err(); {
			case tt.err == "" && (err != nil || stored.Samples != 1):
				t.Errorf("%d samples acknowledged, %v", stored.Samples, err)
			case tt.err != "" && (err == nil || stored.Samples != 0 || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("%d samples acknowledged, error %v, want one with %q", stored.Samples, err, tt.err)
			}
		})
	}
}

// What is left out counts as if it were stored, all of it, and only it.
func TestHACounts(t *testing.T) {
	f := openFixture(t, withHA)
	f.wantSends(t, "the first sender", from("a", someTime), true)
	b := from("b", someTime+1)
	b.Samples = append(b.Samples, ingest.Sample{T: someTime + 2})
	b.Histograms = []ingest.Histogram{{T: someTime + 3, H: &histogram.Histogram{}}}
	b.Exemplars = []exemplar.Exemplar{{Ts: someTime + 1, HasTs: true}}
	bad := fromCluster("c", "a", -1)
	var rejected ingest.Rejected
	stored, err := f.Append(t.Context(), []ingest.Series{b, from("a", someTime+4), bad}, &rejected)
	if want := (ingest.Stored{Samples: 3, Histograms: 1, Exemplars: 1}); err != nil || stored != want {
		t.Errorf("%+v acknowledged, %v, want %+v", stored, err, want)
	}
	if rejected.Samples[ingest.ReasonTime] != 1 {
		t.Errorf("rejected %v", rejected.Err())
	}
	found := f.collect(t, everything())
	wantSeries(t, "in all", found, ingest.Series{
		Labels:  labels.FromStrings("__name__", "m", "cluster", "c"),
		Samples: []ingest.Sample{{T: someTime, V: 1}, {T: someTime + 4, V: 1}},
	})
	if n := f.counter(t, "adapter_ha_deduplicated_samples_total", "cluster", "c"); n != 4 {
		t.Errorf("%g counted as deduplicated", n)
	}
	if n := f.counter(t, "adapter_engine_appended_samples_total", "result", "success"); n != 2 {
		t.Errorf("%g counted as appended", n)
	}

	// What the store refuses is not acknowledged, what is left out is.
	f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table == bucketstore.Metric {
			return errStore
		}
		return nil
	}
	stored, err = f.Append(t.Context(), []ingest.Series{b, from("a", someTime+5)}, &rejected)
	if want := (ingest.Stored{Samples: 2, Histograms: 1, Exemplars: 1}); !errors.Is(err, errStore) || stored != want {
		t.Errorf("%+v acknowledged, %v, want %+v", stored, err, want)
	}
}

// A matcher on the replica label is ignored.
func TestHAMatchers(t *testing.T) {
	f := openFixture(t, withHA)
	sent := from("a", someTime)
	sent.Exemplars = []exemplar.Exemplar{{Labels: labels.FromStrings("trace", "x"), Ts: someTime, HasTs: true}}
	f.append(t, sent)
	stored := labels.FromStrings("__name__", "m", "cluster", "c").String()
	for _, replica := range []*labels.Matcher{
		match("__replica__", "a"), match("__replica__", "b"), match("__replica__", ""),
		labels.MustNewMatcher(labels.MatchNotEqual, "__replica__", ""),
		labels.MustNewMatcher(labels.MatchRegexp, "__replica__", "b.+"),
	} {
		t.Run(replica.String(), func(t *testing.T) {
			ms := []*labels.Matcher{replica, match("__name__", "m"), replica}
			before := slices.Clone(ms)
			for _, tt := range []struct {
				name string
				find func(*fixture, context.Context, []*labels.Matcher) (string, error)
				want string
			}{
				{"select", findSelected, stored},
				{"current", findCurrent, stored},
				{"exemplars", findExemplars, stored},
				{"values", findValues, "c"},
			} {
				if got, err := tt.find(f, t.Context(), ms); got != tt.want || err != nil {
					t.Errorf("%s: found %q, %v, want %q", tt.name, got, err, tt.want)
				}
			}
			if !slices.Equal(ms, before) {
				t.Errorf("the caller's matchers are now %s", ms)
			}
		})
	}
	found, err := findSelected(f, t.Context(), []*labels.Matcher{match("__replica__", "a"), match("__name__", "n")})
	if found != "" || err != nil {
		t.Errorf("another name: found %q, %v", found, err)
	}
}

func findSelected(f *fixture, ctx context.Context, ms []*labels.Matcher) (found string, err error) {
	set, err := f.Select(ctx, reader.Query{Matchers: ms, Mint: math.MinInt64, Maxt: math.MaxInt64})
	if err != nil {
		return "", err
	}
	for set.Next() {
		found += set.At().Labels().String()
	}
	return found, set.Err()
}

func findCurrent(f *fixture, ctx context.Context, ms []*labels.Matcher) (found string, err error) {
	current, err := f.Current(ctx, [][]*labels.Matcher{ms}, 0)
	for _, s := range current {
		found += s.Labels.String()
	}
	return found, err
}

func findExemplars(f *fixture, ctx context.Context, ms []*labels.Matcher) (found string, err error) {
	q, err := f.ExemplarQuerier(ctx)
	if err != nil {
		return "", err
	}
	results, err := q.Select(0, someTime, ms)
	for _, r := range results {
		found += r.SeriesLabels.String()
	}
	return found, err
}

func findValues(f *fixture, ctx context.Context, ms []*labels.Matcher) (string, error) {
	q, err := f.Querier(0, someTime)
	if err != nil {
		return "", err
	}
	values, _, err := q.LabelValues(ctx, "cluster", &storage.LabelHints{}, ms...)
	return strings.Join(values, " "), err
}

// Without the flags the labels are labels like any other.
func TestHAOff(t *testing.T) {
	f := openFixture(t)
	for i, replica := range []string{"a", "b"} {
		f.wantSends(t, replica, from(replica, someTime+int64(i)), true)
		found, err := findSelected(f, t.Context(), []*labels.Matcher{match("__replica__", replica)})
		if want := fmt.Sprintf(`{__name__="m", __replica__=%q, cluster="c"}`, replica); found != want || err != nil {
			t.Errorf("found %q, %v, want %q", found, err, want)
		}
	}
}
