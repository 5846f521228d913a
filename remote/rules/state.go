package rules

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// A state is how far the recording rules of a group are: the JSON of META/recorded,<file>;<group>.
type state struct {
	// Done has the time of the last step, in milliseconds, that each rule was evaluated at, by what it is.
	Done map[string]int64 `json:"done"`
	// OK has that of the last one that has not failed.
	OK map[string]int64 `json:"ok"`
	// Since has that of the step before the first.
	Since map[string]int64 `json:"since"`
	// Corrected is the time of a step, in milliseconds: when it was the last one, the steps up to it had all samples that had come. 0 is that
	// of the last step of all rules, as in a state of version 0.1.
	Corrected int64 `json:"corrected,omitempty"`
}

// stateKey is the key of the row of a group. That of the lease has no name.
func (r *Runner) stateKey(name string) string {
	key, err := r.cfg.Schema.AppendMetaKey(nil, series.MetaRecorded, name)
	if err != nil {
		panic("rules: " + err.Error()) // the schema is of no tenant
	}
	return string(key)
}

// errTaken says that another process has recorded meanwhile.
var errTaken = errors.New("another process records this group")

// readState reads how far the group is.
func (g *group) readState(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	cell, found, err := meta.ReadJSON[state](ctx, g.runner.cfg.Store, g.runner.stateKey(g.key))
	if err != nil {
		return err
	}
	g.cell, g.corrected = cell, found.Corrected
	for i := range g.recordings {
		rule := &g.recordings[i]
		if at, ok := found.Done[rule.id]; ok && at != rule.done {
			rule.done, rule.ok, rule.since, rule.previous = at, found.OK[rule.id], found.Since[rule.id], nil
		}
	}
	return nil
}

// writeState stores how far the group is. It forgets rules that are not there any more.
func (g *group) writeState(ctx context.Context, recordings []recording) error {
	next := state{Done: make(map[string]int64), OK: make(map[string]int64), Since: make(map[string]int64), Corrected: g.corrected}
	for _, rule := range recordings {
		next.Done[rule.id], next.OK[rule.id], next.Since[rule.id] = rule.done, rule.ok, rule.since
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, jobs.MetaTimeout)
	defer cancel()
	cell := meta.Cell{Value: value, Time: max(g.runner.cfg.Now().UnixMilli(), g.cell.Time+1)}
	set, err := meta.CompareAndSet(ctx, g.runner.cfg.Store, g.runner.stateKey(g.key), g.cell, cell)
	switch {
	case err != nil:
		return err
	case !set:
		return errors.Join(errTaken, g.begin(ctx))
	}
	g.cell = cell
	return nil
}

// timeText is a time in milliseconds for people.
func timeText(t int64) string { return time.UnixMilli(t).UTC().Format(time.RFC3339) }
