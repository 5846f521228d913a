package retention_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/timeline/timelinetest"
	"github.com/promtable/promtable/series"
)

// TestWalkerRun: what fails is counted, and Run ends with its context. No rules are no view.
func TestWalkerRun(t *testing.T) {
	f := newFixture(t)
	about, err := meta.Open(t.Context(), f, series.Schema{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	none, err := retention.OpenRules(t.Context(), retention.RulesConfig{Meta: about, Now: f.now})
	if err != nil {
		t.Fatal(err)
	}
	v, err := none.Resolve(t.Context())
	if err != nil || v.Latest() != 0 || none.Known().LatestRefused() != 0 || v.KeyCut([]byte("up,")) != 0 || v.KeyClosed([]byte("up,")) != 0 {
		t.Errorf("a view %v, %v", v, err)
	}
	idle := retention.NewWalker(retention.WalkerConfig{
		Rules: none, Store: f, Timeline: timelinetest.Bounds{},
		Newest: func() (int64, error) { return 0, errors.New("without rules it asks for the newest samples") },
	})
	if err := idle.Advance(t.Context()); err != nil {
		t.Error(err)
	}
	list, err := retention.ParseRules("rules.yml", []byte("rules: [{match: up, raw: 5d}]"), bucketstore.Retention{})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := retention.OpenRules(t.Context(), retention.RulesConfig{Meta: about, Now: f.now, FileRules: retention.WithRest(list, bucketstore.Retention{})})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"up": someTime - 5*day, "down": 0} {
		key, err := series.Schema{}.AppendSeriesKey(nil, labels.FromStrings("__name__", name))
		v, ruleErr := rules.Resolve(t.Context())
		if got := v.KeyCut(key); got != want || err != nil || ruleErr != nil {
			t.Errorf("%s is cut at %d, want %d, %v, %v", name, got, want, err, ruleErr)
		}
	}
	reg := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 1)
	w := retention.NewWalker(retention.WalkerConfig{
		Rules: rules, Store: f, Registerer: reg, Timeline: timelinetest.Bounds{},
		Newest: func() (int64, error) {
			asked <- struct{}{}
			return 0, errStore
		},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	<-asked
	for counter(t, reg, "adapter_retention_rule_failures_total") != 1 {
		select {
		case <-ended:
			t.Fatal("Run has ended")
		default:
		}
	}
	cancel()
	<-ended
}

func counter(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
