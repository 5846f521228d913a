package retention_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A slowMeta is a store whose META answers when a test says so.
type slowMeta struct {
	bucketstore.Store
	// answers, if set, has the answer of each read. An error ends it, nil reads.
	answers chan error
	reads   atomic.Int64
}

// Scan implements bucketstore.Store.
func (s *slowMeta) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	s.reads.Add(1)
	if s.answers != nil {
		select {
		case err := <-s.answers:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Store.Scan(ctx, req, fn)
}

// TestRulesMetaAway: of many requests that need to know what is in META, one reads it. The others wait as long as their contexts.
func TestRulesMetaAway(t *testing.T) {
	f := newFixture(t)
	store := &slowMeta{Store: f.Store}
	about, err := meta.Open(t.Context(), storetest.Shared(store, true), series.Schema{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := retention.OpenRules(t.Context(), retention.RulesConfig{Meta: about, Now: f.now})
	if err != nil {
		t.Fatal(err)
	}
	f.clock.Add((11 * time.Minute).Milliseconds())
	store.answers = make(chan error)
	store.reads.Store(0)
	const requests = 20
	errs := make(chan error, requests)
	ask := func() {
		for range requests {
			go func() {
				_, err := rules.Resolve(t.Context())
				errs <- err
			}()
		}
	}
	wantAll := func(want error, reads int64) {
		t.Helper()
		for range requests {
			if err := <-errs; !errors.Is(err, want) {
				t.Errorf("a request: %v, want %v", err, want)
			}
		}
		if got := store.reads.Swap(0); got != reads {
			t.Errorf("META was read %d times, want %d", got, reads)
		}
	}
	ask()
	for store.reads.Load() == 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rules.Resolve(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
	store.answers <- errStore
	wantAll(errStore, 1)
	f.clock.Add((10 * time.Second).Milliseconds())
	ask()
	store.answers <- nil
	wantAll(nil, 1)
	ask()
	wantAll(nil, 0)
}

// TestShownMetaAway: while META cannot be read, reads of a store without rules go on, of any time. Writes and makers do not, and neither do
// reads of a store with rules.
func TestShownMetaAway(t *testing.T) {
	f := newFixture(t)
	store := &slowMeta{Store: f.Store}
	about, err := meta.Open(t.Context(), storetest.Shared(store, true), series.Schema{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := meta.Open(t.Context(), f.Store, series.Schema{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := retention.OpenRules(t.Context(), retention.RulesConfig{Meta: about, Now: f.now})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, shown, sure error, hasRules bool) {
		t.Helper()
		for _, from := range []int64{0, someTime - 3*day} {
			v, err := rules.ShownRules(t.Context(), f.now(), func() int64 { return from })
			if !errors.Is(err, shown) || err == nil && (v.(*retention.RuleView) != nil) != hasRules {
				t.Errorf("%s: a read from %d on has %v, %v, want rules %v, %v", when, from, v, err, hasRules, shown)
			}
		}
		if _, err := rules.Resolve(t.Context()); !errors.Is(err, sure) {
			t.Errorf("%s: a write has %v, want %v", when, err, sure)
		}
	}
	away := func() {
		f.clock.Add((11 * time.Minute).Milliseconds())
		store.answers = make(chan error, 100)
		for range cap(store.answers) {
			store.answers <- errStore
		}
	}
	want("at once", nil, nil, false)
	away()
	want("META is away", nil, errStore, false)
	f.clock.Add((24 * time.Hour).Milliseconds())
	want("for a day", nil, errStore, false)
	list := meta.NewRuleList("", [][]meta.Matcher{{{Name: "__name__", Type: "=", Value: "up"}}})
	if ok, err := other.PutRuleList(t.Context(), &list); err != nil || !ok {
		t.Fatal(ok, err)
	}
	store.answers = nil
	if err := rules.Poll(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("META is back, with rules", nil, nil, true)
	away()
	want("META is away again", errStore, errStore, false)
}

// TestRulesCorrupt: a list in META that has another number of rules than the file of that name is an error, at a start and later.
func TestRulesCorrupt(t *testing.T) {
	f := newFixture(t)
	about, err := meta.Open(t.Context(), f, series.Schema{}, f.now)
	if err != nil {
		t.Fatal(err)
	}
	list, err := retention.ParseRules("rules.yml", []byte("rules: [{match: up, raw: 5d}]"), bucketstore.Retention{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := retention.RulesConfig{Meta: about, Now: f.now, FileRules: retention.WithRest(list, bucketstore.Retention{})}
	rules, err := retention.OpenRules(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	up := []meta.Matcher{{Name: "__name__", Type: "=", Value: "up"}}
	stored := meta.NewRuleList("", [][]meta.Matcher{up, nil})
	stored.Rules = append(stored.Rules, stored.Rules[0])
	if ok, err := about.PutRuleList(t.Context(), &stored); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := rules.Poll(t.Context()); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("read again: %v", err)
	}
	if _, err := retention.OpenRules(t.Context(), cfg); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("opened: %v", err)
	}
	if rules.Known().(*retention.RuleView) == nil {
		t.Error("what was known is forgotten")
	}
}

// TestRulesOfTenants: a rule that names tenants holds for their series alone, whatever labels senders write.
func TestRulesOfTenants(t *testing.T) {
	f := newFixture(t)
	schema := series.Schema{}.WithTenants()
	about, err := meta.Open(t.Context(), f, schema, f.now)
	if err != nil {
		t.Fatal(err)
	}
	list, err := retention.ParseRules("rules.yml", []byte(`rules: [{match: 'up{__tenant_id__=~"a|c"}', raw: 5d}, {match: '{__tenant_id__!="b"}', raw: 7d}]`), bucketstore.Retention{})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := retention.OpenRules(t.Context(), retention.RulesConfig{Meta: about, Schema: schema, Now: f.now, FileRules: retention.WithRest(list, bucketstore.Retention{})})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := rules.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tenant, name string
		days         int64
	}{{"a", "up", 5}, {"c", "up", 5}, {"b", "up", 0}, {"d", "up", 7}, {"a", "down", 7}, {"b", "down", 0}} {
		ls := labels.FromStrings("__name__", c.name, series.TenantLabel, "b")
		of, err := schema.ForTenant(c.tenant)
		if err != nil {
			t.Fatal(err)
		}
		key, err := of.AppendSeriesKey(nil, ls)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		if c.days > 0 {
			want = someTime - c.days*day
		}
		shown := rules.Known().For(c.tenant)
		refused, _ := shown.Refused(ls)
		if got := shown.Of(ls)[rollup.Raw]; got != want || refused != want || keys.KeyCut(key) != want {
			t.Errorf("%s of %s is cut at %d, %d, %d, want %d", c.name, c.tenant, got, refused, keys.KeyCut(key), want)
		}
	}
}
