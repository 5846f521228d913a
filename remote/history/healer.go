package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/series"
)

// healMargin is how much before the first sample that is missing a Healer begins to compare: series are scraped at different times.
const healMargin = 5 * time.Minute

// HealerConfig says what a Healer does. All but Matchers is required.
type HealerConfig struct {
	// From is the remote read of a sender. Its URL is logged, and has no password.
	From Server
	// Probe selects series of which each scrape of the sender makes a sample, such as up.
	Probe []*labels.Matcher
	// Matchers are the selectors of what is healed, of which a series must match one. None is all series.
	Matchers [][]*labels.Matcher
	// Last is how far back the first comparison looks, Interval is how often there is one. Younger samples than that are on their way.
	Last, Interval time.Duration
	// Target takes samples, Read returns the series of a selection that it has in a unit, sorted by labels.
	Target Target
	Read   func(ctx context.Context, sel Selection, u Unit) (storage.ChunkSeriesSet, error)
	// Missing returns the samples of one series in a unit at times at which another one has none, or nil. The other one may be nil.
	Missing func(one, other storage.ChunkSeries, u Unit) (storage.ChunkSeries, error)
	// Elected, if set, says of the labels of a series of the sender that it is one of replicas, of which one is stored, without the label in which they differ.
	Elected func(ls labels.Labels) bool
	// Report notes how far the heal of a gap is, and says whether it is to stop, see Reported.
	Report     func(ctx context.Context, t Transfer) (stop bool)
	Now        func() time.Time
	Logger     log.Logger
	Registerer prometheus.Registerer
}

// A Healer brings what a sender has scraped and has not sent: after an outage of the store that was longer than what the sender keeps to send, or after a start of
// the sender, which does not go on where it was. It finds such a gap by the series of Probe: the store lacks a sample of one of them, and has a later one of the
// sender. A series of which the store has none is not looked at, nor is a sender that has not sent again: what it still has to send comes by itself. Of the time of a gap all series are
// compared, and only what is missing is written.
type Healer struct {
	cfg    HealerConfig
	source *RemoteRead
	// checked is up to which time no gap is left, in milliseconds.
	checked int64
	// hasFailed says that the last comparison failed: the first of several failures is logged.
	hasFailed bool

	samples, failures prometheus.Counter
	success           prometheus.Gauge
}

// NewHealer returns a Healer that has compared nothing yet.
func NewHealer(cfg HealerConfig) (*Healer, error) {
	source, err := NewRemoteRead(cfg.From, Selection{})
	if err != nil {
		return nil, err
	}
	f := metricset.New(cfg.Registerer)
	return &Healer{
		cfg: cfg, source: source, checked: cfg.Now().Add(-cfg.Last).UnixMilli(),
		samples:  f.Counter("adapter_heal_samples_total", "Samples that a sender had not sent and that were read from it, by --heal.from."),
		failures: f.Counter("adapter_heal_failures_total", "Comparisons with a sender of --heal.from that failed, or after which samples were still missing."),
		success:  f.Gauge("adapter_heal_last_success_timestamp_seconds", "When the last comparison with a sender of --heal.from succeeded, in seconds since 1970."),
	}, nil
}

// Run heals until ctx ends.
func (h *Healer) Run(ctx context.Context) {
	for bucketstore.Sleep(ctx, h.cfg.Interval) == nil {
		err := h.Heal(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			h.success.Set(float64(h.cfg.Now().UnixMilli()) / 1000)
		default:
			h.failures.Inc()
			if !h.hasFailed {
				level.Warn(h.cfg.Logger).Log("msg", "cannot bring what a sender has not sent, trying again", "from", h.cfg.From.URL, "err", err)
			}
		}
		h.hasFailed = err != nil
	}
	_ = h.source.Close()
}

// Heal compares once, and brings what is missing. After an error that says that samples are still missing it does not look at their time again.
func (h *Healer) Heal(ctx context.Context) error {
	rolled, err := h.cfg.Target.Rolled(ctx)
	if err != nil {
		return fmt.Errorf("read which samples the store keeps: %w", err)
	}
	from := max(h.checked, rolled) + 1
	end := h.cfg.Now().Add(-h.cfg.Interval).UnixMilli()
	if from > end {
		return nil
	}
	gap, newest, err := h.find(ctx, from, end)
	if err != nil || newest < from {
		return err
	}
	var healed Copied
	if gap <= newest {
		healed, err = h.bring(ctx, max(rolled+1, gap-healMargin.Milliseconds()), newest)
		if err != nil && !errors.Is(err, ErrStopped) {
			return err
		}
	}
	h.checked = newest
	if healed.Different > 0 {
		return fmt.Errorf("in %d of %d parts samples are still missing", healed.Different, healed.Units)
	}
	return nil
}

// find returns the first time between two at which the store lacks a sample of the probe, or math.MaxInt64, and the time of the newest sample of the probe that the
// store has of the sender, or math.MinInt64: up to there the sender has sent what it will send.
func (h *Healer) find(ctx context.Context, mint, maxt int64) (gap, newest int64, err error) {
	sel := Selection{Matchers: [][]*labels.Matcher{h.cfg.Probe}, Mint: mint, Maxt: maxt}
	units, _, err := unitsOf(sel, grid{span: UnitSpan})
	if err != nil {
		return 0, 0, err
	}
	has := make(map[uint64]int64) // the newest sample that the store has of a series, by the hash of its labels
	for _, u := range units {
		if err := h.noteNewest(ctx, sel, u, has); err != nil {
			return 0, 0, fmt.Errorf("read the store: %w", err)
		}
	}
	gap, newest = math.MaxInt64, math.MinInt64
	source := *h.source
	source.sel = sel
	cfg := h.copyConfig(&source, sel)
	cfg.Lacking = func(target, source storage.ChunkSeries, u Unit) (storage.ChunkSeries, error) {
		if h.cfg.Elected != nil && h.cfg.Elected(source.Labels()) {
			return nil, fmt.Errorf("%s is of a replica, and is stored without the label in which replicas differ: what is missing of it cannot be found", series.Abbreviate(source.Labels()))
		}
		last, ok := has[source.Labels().Hash()]
		if !ok {
			return nil, nil
		}
		newest = max(newest, last)
		missing, err := h.cfg.Missing(source, target, u)
		if err != nil || missing == nil {
			return nil, err
		}
		it := missing.Iterator(nil)
		if it.Next() {
			gap = min(gap, it.At().MinTime)
		}
		return nil, it.Err()
	}
	_, _, err = CountLacking(ctx, cfg) // Lacking has noted what there is, and nothing is left to count
	return gap, newest, err
}

// noteNewest notes the newest samples of the series of a selection that the store has in a unit.
func (h *Healer) noteNewest(ctx context.Context, sel Selection, u Unit, newest map[uint64]int64) error {
	set, err := h.cfg.Read(ctx, sel, u)
	if err != nil {
		return err
	}
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() {
			if c := it.At(); c.MinTime < u.Limit { // it has a sample up to there
				hash := set.At().Labels().Hash()
				newest[hash] = max(newest[hash], min(c.MaxTime, u.Limit-1))
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
	}
	return set.Err()
}

// bring writes what the store lacks of all series between two times.
func (h *Healer) bring(ctx context.Context, mint, maxt int64) (Copied, error) {
	logger := log.With(h.cfg.Logger, "from", h.cfg.From.URL, "time", Unit{Start: mint, Limit: maxt})
	level.Info(logger).Log("msg", "a sender has samples that it has not sent: they are read from it")
	sel := Selection{Matchers: h.cfg.Matchers, Mint: mint, Maxt: maxt}
	source := *h.source
	source.sel = sel
	healed, err := ReportedCopy(ctx, h.copyConfig(&source, sel), Transfer{Kind: "heal", Source: h.cfg.From.URL}, h.cfg.Report, func(Copied) {})
	h.samples.Add(float64(healed.Samples))
	if err == nil {
		level.Info(logger).Log("msg", "samples that a sender had not sent are written", "samples", healed.Samples)
	}
	return healed, err
}

func (h *Healer) copyConfig(source *RemoteRead, sel Selection) CopyConfig {
	return CopyConfig{
		Source: source, Selection: sel, Target: h.cfg.Target, Logger: h.cfg.Logger, ID: Digest("heal", h.cfg.From.URL),
		Read: func(ctx context.Context, u Unit) (*Reading, error) {
			set, err := h.cfg.Read(ctx, sel, u)
			return ReadingOf(set), err
		},
		Lacking: func(target, source storage.ChunkSeries, u Unit) (storage.ChunkSeries, error) {
			return h.cfg.Missing(source, target, u)
		},
	}
}
