// Package timelinetest has timelines for tests.
package timelinetest

import (
	"context"
	"time"

	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// Bounds are the bounds that jobs ask for. Those that are nil are 0.
type Bounds struct {
	From           func(of rollup.Resolution) int64
	MadeTo, Closes func() int64
	Rules          func(ctx context.Context) (timeline.KeyRules, error)
}

// From are bounds of which samples and rollups before a time may have been deleted.
func From(from func() int64) Bounds {
	return Bounds{From: func(rollup.Resolution) int64 { return from() }}
}

// Deleted is From of samples.
func (b Bounds) Deleted(time.Time) int64 { return b.Horizon(rollup.Raw) }

// Horizon is From.
func (b Bounds) Horizon(of rollup.Resolution) int64 {
	if b.From == nil {
		return 0
	}
	return b.From(of)
}

// Made is MadeTo.
func (b Bounds) Made() int64 { return orZero(b.MadeTo) }

// Closed is Closes.
func (b Bounds) Closed(context.Context) (int64, error) { return orZero(b.Closes), nil }

func orZero(fn func() int64) int64 {
	if fn == nil {
		return 0
	}
	return fn()
}

// KeyRules is Rules.
func (b Bounds) KeyRules(ctx context.Context) (timeline.KeyRules, error) {
	if b.Rules == nil {
		return timeline.NoRules(), nil
	}
	return b.Rules(ctx)
}

// Cut returns the views of a store without rollups that keeps samples from a time on.
func Cut(from func(now time.Time) int64) timeline.Func {
	return func(now time.Time) *timeline.View { return timeline.RawFrom(now, from(now)) }
}

// Ruled returns the views of a store without rollups that keeps what rules do not cut.
func Ruled(rules timeline.Rules) timeline.Func {
	return func(now time.Time) *timeline.View {
		v := timeline.Unbounded(now)
		v.Ruled = source{rules}
		return v
	}
}

type source struct{ rules timeline.Rules }

func (s source) Rules(context.Context, time.Time, func() int64) (timeline.Rules, error) {
	return s.rules, nil
}

func (s source) ShownRules(context.Context, time.Time, func() int64) (timeline.Rules, error) {
	return s.rules, nil
}

func (s source) Resolve(context.Context) (timeline.KeyRules, error) { return timeline.NoRules(), nil }

func (s source) Known() timeline.Rules { return s.rules }
