package retention

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/semaphore"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// maxStale is how old what a process knows of the cuts of rules may be for a read, a write or a maker.
	maxStale = 10 * time.Minute
	// propagation is how long a Walker waits after it has seen that a cut was raised: then every request relies on it
	// that runs, for it began with an older one before that, or read META since.
	propagation = 20 * time.Minute
	// shareFailure is how long requests share the error of a read of META, rather than read it again.
	shareFailure = 10 * time.Second
)

// RulesConfig says what Rules know. Meta and Now are required.
type RulesConfig struct {
	// Meta is that of the store.
	Meta *meta.Store
	// Schema is the schema of the store. Rules hold for the series of all tenants, unless they name one by series.TenantLabel.
	Schema series.Schema
	// Tenants are those of the store. Nil is that of Schema.
	Tenants jobs.Tenants
	// Now is the clock.
	Now func() time.Time
	// FileRules are those of the file, and a last one, see WithRest. Nil are none: then only what earlier rules have cut is
	// known.
	FileRules []Rule
	// Longest is how long the store keeps each resolution.
	Longest bucketstore.Retention
	// Rollups says that rollups are made: samples go when these are final.
	Rollups bool
	// Logger may be nil.
	Logger log.Logger
}

// Rules know from when on series are kept that are kept for less long than others. They are safe for concurrent use.
type Rules struct {
	cfg   RulesConfig
	known atomic.Pointer[known]
	// polling guards a change of the fields below, and of known. A request that waits for it obeys its context.
	polling *semaphore.Weighted
	// failure is why META could not be read at failedAt, or nil.
	failure  error
	failedAt time.Time
	// isUnread says that the last read of META failed.
	isUnread atomic.Bool
}

// known is what is known of META at one time. It does not change.
type known struct {
	// lists are those of our tenant.
	lists []*ruleList
	// at is when META was read.
	at time.Time
}

// A ruleList is a list of rules and what they have cut.
type ruleList struct {
	meta.RuleList
	matchers [][]*labels.Matcher
	// isOurs says that it is that of RulesConfig.
	isOurs bool
	// seen is when this process first saw the cuts of each rule.
	seen []time.Time
}

// match returns the number of the first rule that matches a series of a tenant, or -1.
func (l *ruleList) match(ls labels.Labels, tenant string) int {
	return slices.IndexFunc(l.matchers, func(ms []*labels.Matcher) bool { return matches(ms, ls, tenant) })
}

// matches says whether matchers match a series of a tenant. A label of the name series.TenantLabel that a sender has written does not count.
func matches(ms []*labels.Matcher, ls labels.Labels, tenant string) bool {
	for _, m := range ms {
		value := tenant
		if m.Name != series.TenantLabel || tenant == "" {
			value = ls.Get(m.Name)
		}
		if !m.Matches(value) {
			return false
		}
	}
	return true
}

// OpenRules reads META.
func OpenRules(ctx context.Context, cfg RulesConfig) (*Rules, error) {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	if cfg.Tenants == nil {
		cfg.Tenants = jobs.NamedTenants(cfg.Schema)
	}
	r := &Rules{cfg: cfg, polling: semaphore.NewWeighted(1)}
	return r, r.Poll(ctx)
}

// Poll reads META: other processes may have changed it.
func (r *Rules) Poll(ctx context.Context) error {
	if err := r.polling.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.polling.Release(1)
	return r.poll(ctx)
}

// refresh is Poll for a request whose view is old. Of those that wait for it one reads META, and they share its error.
func (r *Rules) refresh(ctx context.Context) error {
	if err := r.polling.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.polling.Release(1)
	switch {
	case r.age(r.known.Load().at) <= maxStale:
		return nil
	case r.failure != nil && r.age(r.failedAt) < shareFailure:
		return r.failure
	}
	return r.poll(ctx)
}

// poll is Poll under the lock.
func (r *Rules) poll(ctx context.Context) error {
	next, err := r.read(ctx)
	if err == nil {
		r.known.Store(next)
	}
	r.isUnread.Store(err != nil)
	if r.failure = err; ctx.Err() != nil {
		r.failure = nil // that is of this request alone
	}
	r.failedAt = r.cfg.Now()
	return err
}

// read returns what META says now.
func (r *Rules) read(ctx context.Context) (*known, error) {
	at := r.cfg.Now()
	all, err := r.cfg.Meta.RuleLists(ctx)
	if err != nil {
		return nil, err
	}
	next := &known{at: at}
	isThere, ours := false, r.ourList()
	for _, stored := range all {
		if stored.Tenant != r.cfg.Schema.Tenant() {
			continue
		}
		l, err := r.observe(stored)
		if err != nil {
			return nil, err
		}
		l.isOurs = stored.ID == ours.ID && r.cfg.FileRules != nil
		if l.isOurs && len(l.Rules) != len(ours.Rules) {
			return nil, fmt.Errorf("%w: retention rules %s of META are %d, want the %d of --retention.rules", series.ErrCorrupt, l.ID, len(l.Rules), len(ours.Rules))
		}
		isThere = isThere || l.isOurs
		next.lists = append(next.lists, l)
	}
	if !isThere && r.cfg.FileRules != nil {
		l, err := r.observe(ours)
		if err != nil {
			return nil, err
		}
		l.isOurs = true
		next.lists = append(next.lists, l)
	}
	return next, nil
}

// ourList returns the list of RulesConfig, without cuts.
func (r *Rules) ourList() meta.RuleList {
	rules := make([][]meta.Matcher, len(r.cfg.FileRules))
	for i := range r.cfg.FileRules {
		for _, m := range r.cfg.FileRules[i].Matchers {
			rules[i] = append(rules[i], meta.Matcher{Name: m.Name, Type: m.Type.String(), Value: m.Value})
		}
	}
	return meta.NewRuleList(r.cfg.Schema.Tenant(), rules)
}

// observe returns what is known of a list that was read.
func (r *Rules) observe(stored meta.RuleList) (*ruleList, error) {
	l := &ruleList{RuleList: stored, seen: r.firstSeen(stored)}
	for _, rule := range l.Rules {
		var ms []*labels.Matcher
		for _, m := range rule.Matchers {
			matcher, err := newMatcher(m)
			if err != nil {
				return nil, fmt.Errorf("%w: retention rules %s of META: %v", series.ErrCorrupt, l.ID, err)
			}
			ms = append(ms, matcher)
		}
		l.matchers = append(l.matchers, ms)
	}
	return l, nil
}

// firstSeen returns when this process first saw the cuts of each rule of a list that was read.
func (r *Rules) firstSeen(l meta.RuleList) []time.Time {
	seen := make([]time.Time, len(l.Rules))
	before := r.known.Load()
	if before == nil && !r.cfg.Meta.Traits().Shared {
		return seen // no request from before runs
	}
	for i := range seen {
		seen[i] = r.cfg.Now()
	}
	if before == nil {
		return seen
	}
	for _, b := range before.lists {
		for i := 0; b.ID == l.ID && i < min(len(b.Rules), len(seen)); i++ {
			if b.Rules[i].Closed == l.Rules[i].Closed && b.Rules[i].Cuts == l.Rules[i].Cuts {
				seen[i] = b.seen[i]
			}
		}
	}
	return seen
}

func newMatcher(m meta.Matcher) (*labels.Matcher, error) {
	for kind := labels.MatchEqual; kind <= labels.MatchNotRegexp; kind++ {
		if kind.String() == m.Type {
			return labels.NewMatcher(kind, m.Name, m.Value)
		}
	}
	return nil, fmt.Errorf("a matcher %q", m.Type)
}

// A RuleView is what rules cut at one time. Nil cuts nothing. It does not change.
type RuleView struct {
	schema series.Schema
	// tenant is that of Of and Refused.
	tenant string
	rules  []Rule
	lists  []*ruleList
	// cuts are those of each rule of each of lists.
	cuts                  [][]meta.RuleCuts
	latest, latestRefused int64
}

// Rules implements timeline.RuleSource.
func (r *Rules) Rules(ctx context.Context, now time.Time, from func() int64) (timeline.Rules, error) {
	return r.at(ctx, now, from)
}

// at returns the cuts at now. from returns the first time that the caller needs, in milliseconds. If what is known of META is old, and a cut may
// lie after that time, at reads META, and fails if that fails.
func (r *Rules) at(ctx context.Context, now time.Time, from func() int64) (*RuleView, error) {
	k := r.known.Load()
	if r.cfg.Meta.Traits().Shared && r.age(k.at) > maxStale && from() < timeline.CutAt(now, MinRaw) {
		if err := r.refresh(ctx); err != nil {
			return nil, fmt.Errorf("which samples rules have cut is not known: %w", err)
		}
		k = r.known.Load()
	}
	return r.view(k, now), nil
}

// ShownRules implements timeline.RuleSource. If META cannot be read, and there was no list of rules when it was last read, nothing is cut: lists appear when an
// adapter starts with new rules, and what these cut is deleted later.
func (r *Rules) ShownRules(ctx context.Context, now time.Time, from func() int64) (timeline.Rules, error) {
	hasNone := len(r.known.Load().lists) == 0
	if hasNone && r.isUnread.Load() { // a Walker tries again every minute
		return (*RuleView)(nil), nil
	}
	v, err := r.at(ctx, now, from)
	if err != nil && hasNone && ctx.Err() == nil {
		return (*RuleView)(nil), nil
	}
	return v, err
}

// age returns how long ago a time was.
func (r *Rules) age(at time.Time) time.Duration { return bucketstore.Elapsed(at, r.cfg.Now()) }

// Resolve implements timeline.RuleSource: it returns the rules in force at any time, and waits until they are known.
func (r *Rules) Resolve(ctx context.Context) (timeline.KeyRules, error) {
	return r.at(ctx, r.cfg.Now(), func() int64 { return 0 })
}

// Known implements timeline.RuleSource.
func (r *Rules) Known() timeline.Rules { return r.view(r.known.Load(), r.cfg.Now()) }

func (r *Rules) view(k *known, now time.Time) *RuleView {
	if len(k.lists) == 0 {
		return nil
	}
	v := &RuleView{schema: r.cfg.Schema, rules: r.cfg.FileRules, lists: k.lists, cuts: make([][]meta.RuleCuts, len(k.lists))}
	for i, l := range k.lists {
		v.cuts[i] = slices.Clone(l.Rules)
		for n := range v.cuts[i] {
			c := &v.cuts[i][n]
			if l.isOurs {
				r.cutByClock(&c.Cuts, &r.cfg.FileRules[n], now)
			}
			v.latest = max(v.latest, slices.Max(c.Cuts[:]))
			v.latestRefused = max(v.latestRefused, refusedBefore(c))
		}
	}
	return v
}

// cutByClock raises cuts to those that the ages of a rule ask for. Samples that wait for their rollups are there until META says otherwise.
func (r *Rules) cutByClock(cuts *meta.Horizons, rule *Rule, now time.Time) {
	for of := range rollup.NumResolutions {
		if age, ok := rule.Walked(of, r.cfg.Longest); ok && (of != rollup.Raw || !r.cfg.Rollups) {
			cuts[of] = max(cuts[of], timeline.CutAt(now, age))
		}
	}
}

// For implements timeline.Rules.
func (v *RuleView) For(tenant string) timeline.Rules {
	if v == nil || tenant == v.tenant {
		return v
	}
	of := *v
	of.tenant = tenant
	return &of
}

// Latest returns the latest cut of any series and resolution, in milliseconds. It is 0 if there is none.
func (v *RuleView) Latest() int64 {
	if v == nil {
		return 0
	}
	return v.latest
}

// Of returns the times before which the cells of a series are not shown, by resolution, in milliseconds.
func (v *RuleView) Of(ls labels.Labels) (cuts [rollup.NumResolutions]int64) {
	if v == nil {
		return cuts
	}
	return v.of(ls, v.tenant)
}

// of is Of for a series of a tenant.
func (v *RuleView) of(ls labels.Labels, tenant string) (cuts [rollup.NumResolutions]int64) {
	for i, l := range v.lists {
		if n := l.match(ls, tenant); n >= 0 {
			for of, cut := range v.cuts[i][n].Cuts {
				cuts[of] = max(cuts[of], cut)
			}
		}
	}
	return cuts
}

// refusedBefore returns the time before which samples are refused.
func refusedBefore(c *meta.RuleCuts) int64 {
	if c.Closed == 0 {
		return c.Cuts[rollup.Raw]
	}
	return max(c.Closed+1, c.Cuts[rollup.Raw])
}

// LatestRefused returns the latest time before which any series takes no samples, in milliseconds. It is 0 if there is none.
func (v *RuleView) LatestRefused() int64 {
	if v == nil {
		return 0
	}
	return v.latestRefused
}

// Refused returns the time before which a series takes no samples, in milliseconds, and the rule that says so.
func (v *RuleView) Refused(ls labels.Labels) (before int64, rule string) {
	if v == nil {
		return 0, ""
	}
	for i, l := range v.lists {
		n := l.match(ls, v.tenant)
		if n < 0 {
			continue
		}
		if t := refusedBefore(&v.cuts[i][n]); t > before {
			before, rule = t, v.name(l, n)
		}
	}
	return before, rule
}

// name names a rule for a sender.
func (v *RuleView) name(l *ruleList, n int) string {
	switch {
	case !l.isOurs:
		return "a rule that was there before"
	case n == len(v.rules)-1:
		return "of which none matches, and --retention.resolution-raw"
	}
	return fmt.Sprintf("rule %d %s", n+1, v.rules[n].Selector)
}

// KeyCut returns the time before which samples of the series with a key may be deleted, in milliseconds.
func (v *RuleView) KeyCut(key []byte) int64 {
	if ls, tenant, ok := v.labels(key); ok {
		return v.of(ls, tenant)[rollup.Raw]
	}
	return 0
}

// KeyClosed returns the end of the last day of which no rollup of the series with a key is made any more, or only from samples
// that are final, in milliseconds.
func (v *RuleView) KeyClosed(key []byte) (closed int64) {
	ls, tenant, ok := v.labels(key)
	if !ok {
		return 0
	}
	for i, l := range v.lists {
		if n := l.match(ls, tenant); n >= 0 {
			closed = max(closed, v.cuts[i][n].Closed, v.cuts[i][n].Cuts[rollup.Raw])
		}
	}
	return closed
}

// labels returns the labels and the tenant of a series.
func (v *RuleView) labels(key []byte) (ls labels.Labels, tenant string, ok bool) {
	if v == nil {
		return ls, "", false
	}
	var b labels.ScratchBuilder
	ls, err := v.schema.ParseSeriesKey(key, &b)
	if err == nil && v.schema.Tenancy() {
		tenant, err = series.TenantOf(key)
	}
	return ls, tenant, err == nil
}

// errChanged says that another process has changed a list.
var errChanged = errors.New("another process has changed what retention rules have cut, trying again")

// put writes a list that has changed, and reads META again.
func (r *Rules) put(ctx context.Context, l *meta.RuleList) error {
	ok, err := r.cfg.Meta.PutRuleList(ctx, l)
	switch {
	case err != nil:
		return errors.Join(err, r.Poll(context.WithoutCancel(ctx)))
	case !ok:
		return errors.Join(errChanged, r.Poll(ctx))
	}
	return r.Poll(ctx)
}

// midnight returns the last end of a day of UTC that is not after t, in milliseconds.
func midnight(t int64) int64 {
	const day = int64(24 * time.Hour / time.Millisecond)
	if t == math.MaxInt64 {
		return t
	}
	return t - t%day
}
