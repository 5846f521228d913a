package rules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
)

// A Backfill says what a part of the steps that were asked for has.
type Backfill struct {
	Difference
	// Group is file;name.
	Group string `json:"group"`
	// First and Last are the times of the first and last step of the part, and Next that of the first one after it, in milliseconds. Next is 0 if nothing is left.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	Next  int64 `json:"next"`
}

// A GroupError says that a group cannot be told by what was asked for.
type GroupError struct{ text string }

func (e *GroupError) Error() string { return e.text }

// Backfill evaluates the recording rules of a group at its steps from start to end, of which it does as many as one query takes, and stores what differs from
// what is stored, unless isDry. Steps that are not recorded yet are left to Run. The group is named by its name, or by file;name.
func (r *Runner) Backfill(ctx context.Context, name string, start, end time.Time, isDry bool) (b Backfill, err error) {
	g, err := r.group(name)
	if err != nil {
		return b, err
	}
	recordings, err := g.asStored(ctx)
	if err != nil {
		return b, err
	}
	b.Group, b.First = g.key, g.firstSince(start.UnixMilli())
	last := int64(0)
	for i := range recordings {
		last = max(last, recordings[i].done)
	}
	last = min(last, end.UnixMilli())
	b.Last = min(b.First+(g.partSteps()-1)*g.step, b.First+(last-b.First)/g.step*g.step)
	if b.First > last {
		b.Last = 0
		return b, nil
	}
	if b.Last+g.step <= last {
		b.Next = b.Last + g.step
	}
	b.Difference, err = g.correct(ctx, recordings, b.First, b.Last, isDry)
	return b, err
}

// partSteps is how many steps one call of Backfill evaluates.
func (g *group) partSteps() int64 {
	if g.stepwise {
		return maxSteps / 4
	}
	return maxSteps
}

// firstSince returns the first step at a time or after it, in milliseconds.
func (g *group) firstSince(t int64) int64 {
	at := g.timeOf(time.UnixMilli(t).Add(g.of.QueryOffset()))
	if at < t {
		at += g.step
	}
	return at
}

// group returns the group with a name, or file;name.
func (r *Runner) group(name string) (*group, error) {
	s := r.session()
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*group
	var keys []string
	for key, g := range s.groups {
		if keys = append(keys, key); key == name || g.name == name {
			found = append(found, g)
		}
	}
	slices.Sort(keys)
	switch {
	case len(found) == 0:
		return nil, &GroupError{fmt.Sprintf("there is no group %s: there are %s", name, strings.Join(keys, ", "))}
	case len(found) > 1:
		return nil, &GroupError{fmt.Sprintf("%d groups are named %s: give one of %s", len(found), name, strings.Join(keys, ", "))}
	case len(found[0].ids) == 0:
		return nil, &GroupError{fmt.Sprintf("group %s has no recording rules", name)}
	}
	return found[0], nil
}

// asStored returns the rules as META has them, each recorded since ever, and those that are new up to now.
func (g *group) asStored(ctx context.Context) ([]recording, error) {
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	_, found, err := meta.ReadJSON[state](ctx, g.runner.cfg.Store, g.runner.stateKey(g.key))
	if err != nil {
		return nil, err
	}
	recordings := slices.Clone(g.made)
	for i := range recordings {
		rule := &recordings[i]
		var ok bool
		if rule.done, ok = found.Done[rule.id]; !ok {
			rule.done = g.timeOf(g.runner.cfg.Now())
		}
	}
	return recordings, nil
}
