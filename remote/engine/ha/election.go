package ha

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore/meta"
)

// An election is the row of META that says which replica of a cluster is
// elected, as JSON. Times are milliseconds by the clock of the adapter that
// wrote it. Every write is conditional on what was read, so that of several
// adapters that write at once one wins, and the others read again.
//
// With F for the fail-over time, an adapter that gets samples of
//
//   - the elected replica stores them, and first renews the heartbeat if it is
//     F/3 or further from the adapter's clock, either way;
//   - another replica leaves them out, unless the heartbeat is further than F
//     from the clock. Then it elects that replica.
//
// It caches a row for F/6, and then reads it again. A sample is kept only under
// a heartbeat less than F/3 old, and another replica is elected only over one
// more than F old. It follows, if the clocks of the adapters differ by s:
//
//   - fail-over is between 2F/3 - s and F + s after the last sample of the
//     elected replica, at the next sample of another;
//   - while s < 2F/3 there are never two replicas whose samples are stored;
//   - a replica that pauses no longer than 2F/3 - s keeps its election.
//
// If s is larger the replicas take turns, and for a while the samples of both or of
// neither may be stored. A wrong clock cannot keep a dead replica elected: a heartbeat
// from the future is as bad as an old one.
type election struct {
	Replica   string `json:"replica"`
	Elected   int64  `json:"elected"`
	Heartbeat int64  `json:"heartbeat"`
}

// A row is an election as it was read or written.
type row struct {
	election
	// cell is the stored form; its Value is nil if there is no row yet.
	cell meta.Cell
	// at is when the row was read or written, by our clock, in milliseconds.
	at int64
}

// action is what to do with the samples of a replica.
type action uint8

const (
	store action = iota
	leaveOut
	// write means to store them once the row says that the replica is elected, as of
	// now.
	write
)

// action says what to do with the samples of a replica that come now.
func (e *Elections) action(r *row, replica string) action {
	age := e.now().UnixMilli() - r.Heartbeat
	age = max(age, -age)
	switch {
	case r.cell.Value == nil:
		return write
	case r.Replica == replica && age < e.failover/3:
		return store
	case r.Replica != replica && age <= e.failover:
		return leaveOut
	}
	return write
}

// maxRounds is how often elect begins anew because another adapter was faster:
// once is enough, unless clocks differ or rows vanish.
const maxRounds = 5

// elect finds out from META whether a replica is elected, and elects it or renews
// its heartbeat if that is due. The caller holds the lock of c.
func (e *Elections) elect(ctx context.Context, c *cluster, replica string) (bool, error) {
	for range maxRounds {
		r := e.cachedRow(c)
		if r == nil {
			var err error
			if r, err = e.readRow(ctx, c); err != nil {
				return false, err
			}
			e.cacheRow(c, r)
		}
		if a := e.action(r, replica); a != write {
			return a == store, nil
		}
		won, err := e.writeRow(ctx, c, r, replica)
		if err != nil || won {
			return won, err
		}
	}
	return false, fmt.Errorf("other adapters have changed row %q of META %d times", c.key, maxRounds)
}

func (e *Elections) readRow(ctx context.Context, c *cluster) (*row, error) {
	r := &row{at: e.now().UnixMilli()}
	var err error
	if r.cell, r.election, err = meta.ReadJSON[election](ctx, e.store, c.key); err != nil {
		return nil, fmt.Errorf("read META: %w", err)
	}
	return r, nil
}

// writeRow makes the row say that a replica is elected, if it is still as old says,
// and returns whether it was.
func (e *Elections) writeRow(ctx context.Context, c *cluster, old *row, replica string) (won bool, err error) {
	now := e.now().UnixMilli()
	next := &row{election: election{Replica: replica, Elected: now, Heartbeat: now}, at: now}
	if replica == old.Replica {
		next.Elected = old.Elected
	}
	value, err := json.Marshal(next.election)
	if err != nil {
		return false, err
	}
	next.cell = meta.Cell{Value: value, Time: now}
	won, err = meta.CompareAndSet(ctx, e.store, c.key, old.cell, next.cell)
	if err != nil || !won {
		e.cacheRow(c, nil)
		return false, err
	}
	e.cacheRow(c, next)
	if replica != old.Replica {
		e.metrics.elections.Inc()
		level.Info(e.logger).Log("msg", "replica elected", "cluster", c.name, "replica", replica, "before", old.Replica)
	}
	return true, nil
}
