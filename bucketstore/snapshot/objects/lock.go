package objects

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
)

// A beat is what a process says of its lock, again and again.
type beat struct {
	// Holder names the process.
	Holder string `json:"holder"`
	// Works says that it has begun. Else it waits for others.
	Works bool `json:"works"`
	// Number grows.
	Number int `json:"number"`
}

// ErrLocked says that another process writes.
var ErrLocked = errors.New("another process writes snapshots there")

// errLost says that another process has taken the lock away.
var errLost = errors.New("this process was silent for so long that another one has taken its lock on the snapshots away")

// A lock is that of a process. It waits first, and holds the lock then: beat is of the one that does.
type lock struct {
	b     *Bucket
	token string
	beat  beat
}

// lock waits until this process is the only one. It returns an ErrLocked as soon as another one shows that it works.
func (b *Bucket) lock(ctx context.Context) (l *lock, err error) {
	l = &lock{b: b, token: rand.Text(), beat: beat{Holder: b.cfg.Holder}}
	if err := l.say(ctx, false); err != nil {
		return nil, err
	}
	if err := b.put(ctx, locksDir+l.token, []byte(b.cfg.Holder)); err != nil {
		return nil, errors.Join(err, l.release(ctx))
	}
	if err := l.wait(ctx); err != nil {
		return nil, errors.Join(err, l.release(ctx))
	}
	return l, nil
}

// say writes the next beat.
func (l *lock) say(ctx context.Context, works bool) error {
	l.beat.Number++
	l.beat.Works = l.beat.Works || works
	text, err := json.Marshal(l.beat)
	if err != nil {
		return err
	}
	return l.b.put(ctx, beatsDir+l.token, text)
}

// wait waits until no other lock is there.
func (l *lock) wait(ctx context.Context) error {
	type seen struct {
		beat
		at time.Time
	}
	others := make(map[string]seen)
	for {
		tokens, err := l.b.list(ctx, locksDir)
		if err != nil {
			return err
		}
		isOurs, left := false, 0
		for _, token := range tokens {
			if token == l.token {
				isOurs = true
				continue
			}
			left++
			now, err := l.b.beatOf(ctx, token)
			if err != nil {
				return err
			}
			before, ok := others[token]
			switch {
			case !ok:
				others[token] = seen{now, time.Now()}
			case before.beat == now && time.Since(before.at) > l.b.cfg.Stale:
				level.Warn(l.b.cfg.Logger).Log("msg", "a lock on the snapshots is removed, its process has ended without that", "process", now.Holder)
				if err := l.b.remove(ctx, locksDir+token); err != nil {
					return err
				}
			case before.beat == now:
			case now.Works || token < l.token: // of those that wait one goes on
				return fmt.Errorf("%w: %s, %s", ErrLocked, now.Holder, l.b.cfg.Name)
			default:
				others[token] = seen{now, time.Now()}
			}
		}
		if !isOurs {
			return errLost
		}
		if err := l.say(ctx, left == 0); err != nil || left == 0 {
			return err
		}
		if err := bucketstore.Sleep(ctx, l.b.cfg.Stale/8); err != nil {
			return err
		}
	}
}

// beatOf returns the last beat of a lock. It may be zero.
func (b *Bucket) beatOf(ctx context.Context, token string) (last beat, err error) {
	text, err := b.get(ctx, beatsDir+token)
	if isGone(err) {
		return last, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	return last, err
}

// hold writes beats until ctx ends. If it cannot, or another process has taken the lock away, it calls lost.
func (l *lock) hold(ctx context.Context, lost func(error)) {
	for bucketstore.Sleep(ctx, l.b.cfg.Stale/4) == nil {
		err := l.check(ctx)
		if err == nil {
			err = l.say(ctx, true)
		}
		if err != nil && ctx.Err() == nil {
			lost(err)
			return
		}
	}
}

// check fails if another process has taken the lock away.
func (l *lock) check(ctx context.Context) error {
	var isThere bool
	err := l.b.retry(ctx, "look at the lock", func() (err error) {
		isThere, err = l.b.cfg.Objects.Exists(ctx, locksDir+l.token)
		return err
	})
	if err == nil && !isThere {
		err = fmt.Errorf("%w: %s", errLost, l.b.cfg.Name)
	}
	return err
}

// endTimeout bounds what a process does when it ends.
const endTimeout = 10 * time.Second

// afterEnd returns a context for that.
func afterEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
}

// release removes the lock, also if ctx has ended.
func (l *lock) release(ctx context.Context) error {
	ctx, done := afterEnd(ctx)
	defer done()
	return errors.Join(l.b.remove(ctx, beatsDir+l.token), l.b.remove(ctx, locksDir+l.token))
}
