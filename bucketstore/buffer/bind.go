package buffer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/bucketstore/meta"
)

// ErrForeignLog says that the samples in a log belong to another store or schema.
var ErrForeignLog = errors.New("the log is not one of this store")

// ErrOlderLog says that the store knows later requests of a log than those in it.
var ErrOlderLog = errors.New("the log is older than its store")

// ErrInUse says that a log holds samples that may not be in the store.
var ErrInUse = errors.New("it holds samples that are not in the store yet")

// A LostLogError says that META lists a log which is not in the directory that the adapter
// was given. Its samples may not be in the store.
type LostLogError struct {
	Log meta.Log
	// Dir is the directory that was searched.
	Dir string
}

func (e *LostLogError) Error() string {
	return fmt.Sprintf("the store waits for the samples of %s, which is not in %s", e.Log, e.Dir)
}

// Terms says how a log is bound to its store. Store and Now are required.
type Terms struct {
	Store *meta.Store
	// Location says where the store is, for messages.
	Location string
	// Discard is the ID of a lost log, which the store is to forget. Empty is none.
	Discard string
	Now     func() time.Time
	// Logger may be nil.
	Logger log.Logger
}

// Bind checks that the log belongs to the store, and binds it if it is new. If it does not
// belong, nothing is changed and the error is an ErrForeignLog or a *LostLogError. Bind
// also stores the schema and the identity of the store.
func (d *Dir) Bind(ctx context.Context, t Terms) error {
	if isForgotten, err := t.Store.IsForgotten(ctx, d.state.Log); err != nil {
		return err
	} else if isForgotten {
		if err := d.setAside(t); err != nil {
			return fmt.Errorf("set aside the log in %s, which the store has forgotten: %w", d.state.Path(), err)
		}
	}
	logs, err := t.Store.Logs(ctx)
	if err != nil {
		return err
	}
	discarded, err := t.check(&d.state, logs)
	if err != nil {
		return err
	}
	if d.metaStamp, err = t.checkAge(ctx, &d.state, logs); err != nil {
		return err
	}
	hasSamples := d.state.hasSamplesOf(discarded, logs, !t.Store.Traits().Shared)
	if t.Discard == d.state.Log && d.state.holdsSamples() { // it is older: the store keeps what it knows of the ID
		hasSamples, d.metaStamp = true, 0
		next := d.state.dirIdentity
		next.Log = rand.Text()
		if err := d.setIdentity(next); err != nil {
			return err
		}
	}
	if err := t.discard(ctx, discarded, hasSamples); err != nil {
		return err
	}
	// META lists the log before its replay. So a start that dies in between can be repeated. What a member has promised goes on to hold: until it
	// answers again, others know by that row what they cannot ask for.
	if d.state.holdsSamples() {
		l := d.describe(t.Now(), d.state.size())
		if i := slices.IndexFunc(logs, func(before meta.Log) bool { return before.ID == l.ID }); i >= 0 {
			l.Address, l.Token, l.Promise, l.Settings = logs[i].Address, logs[i].Token, logs[i].Promise, logs[i].Settings
		}
		if err := t.Store.PutLog(ctx, l); err != nil {
			return err
		}
	}
	if err := t.Store.Init(ctx); err != nil {
		return err
	}
	d.store = t.Store
	return d.bindTo(t)
}

// setAside renames the files of a log that the store has forgotten, and makes the directory that of a new log. Its samples may be of days
// that are counted as whole, so that only people can say what is right.
func (d *Dir) setAside(t Terms) error {
	s, id := &d.state, d.state.Log
	names := []string{syncedName} // first: it names a segment
	for _, head := range slices.Concat(s.heads, s.rowFiles) {
		names = append(names, head.name)
	}
	for _, name := range names {
		if err := s.Rename(name, s.asideName(name, forgottenSuffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	bytes, hasSamples := s.size(), s.holdsSamples()
	if err := s.Sync(); err != nil {
		return err
	}
	if err := d.setIdentity(dirIdentity{Log: rand.Text()}); err != nil {
		return err
	}
	if hasSamples {
		level.Error(t.logger()).Log("msg", "the store was made to forget this log: its samples are set aside and not replayed", "log", id, "files", filepath.Join(s.Path(), "*."+id+forgottenSuffix), "bytes", bytes)
	}
	state, err := readDir(s.Dir)
	if err == nil {
		d.state = state
	}
	return err
}

// bindTo writes the identity of the store into the directory.
func (d *Dir) bindTo(t Terms) error {
	before := d.state.dirIdentity
	next := dirIdentity{Log: before.Log, Binding: t.binding(), Location: t.Location}
	if before.Store != "" && before.Store != next.Store || before.Log == t.Discard {
		next.Log = rand.Text() // a store may list the log under the previous ID
	}
	if next == before {
		return nil
	}
	if before.Store == next.Store && before.Location != next.Location {
		level.Warn(t.logger()).Log("msg", "the store of this log was at another place before; if it was copied, only one of the copies may have the log", "before", before.Location, "now", next.Location)
	}
	if err := d.setIdentity(next); err != nil {
		return fmt.Errorf("bind the log in %s to its store: %w", d.state.Path(), err)
	}
	return nil
}

// CheckUnused checks that an adapter without a buffer leaves no samples in a log. A log in
// dir with samples is an ErrInUse; a log that an exclusive store lists is a *LostLogError.
// CheckUnused also stores the schema and the identity of the store.
func CheckUnused(ctx context.Context, dir string, t Terms) (err error) {
	state, err := readDir(durable.OS(dir))
	if err != nil {
		return fmt.Errorf("the log in %s: %w", dir, err)
	}
	if len(state.heads) > 0 { // another adapter may use it
		locked, openErr := OpenDir(dir, t.Now())
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, locked.Close()) }()
		state = locked.state
	}
	if state.holdsSamples() {
		return fmt.Errorf("the log in %s: %w", dir, ErrInUse)
	}
	logs, err := t.Store.Logs(ctx)
	if err != nil {
		return err
	}
	discarded, err := t.check(&state, logs)
	if err != nil {
		return err
	}
	if err := t.discard(ctx, discarded, false); err != nil {
		return err
	}
	if slices.ContainsFunc(logs, func(l meta.Log) bool { return l.ID == state.Log }) { // it is empty
		if err := t.Store.RemoveLog(ctx, state.Log); err != nil {
			return err
		}
	}
	return t.Store.Init(ctx)
}

func (t *Terms) binding() Binding {
	return Binding{Store: t.Store.Identity(), Schema: t.Store.SchemaDigest()}
}

// check compares the state of a directory with the logs in META. It returns the log to
// discard, or nil.
func (t *Terms) check(s *dirState, logs []meta.Log) (discarded *meta.Log, err error) {
	for i := range logs {
		switch l := &logs[i]; {
		case l.ID == t.Discard:
			discarded = l
		case l.ID == s.Log && len(s.heads) == 0, l.ID != s.Log && !t.Store.Traits().Shared:
			return nil, &LostLogError{Log: *l, Dir: s.Path()}
		}
	}
	if !s.holdsSamples() {
		return discarded, nil
	}
	return discarded, t.checkBinding(s)
}

// checkAge returns the stamp up to which the store knows the log. If the log holds samples, and none of its requests is as late, it is
// an older copy, or its end is lost: replayed, it would bring back what was deleted since. It is an ErrOlderLog, unless it is to be
// discarded.
func (t *Terms) checkAge(ctx context.Context, s *dirState, logs []meta.Log) (known int64, err error) {
	if s.Log == "" || len(s.heads) == 0 {
		return 0, nil
	}
	if known, err = t.Store.LogStamp(ctx, s.Log); err != nil {
		return 0, err
	}
	isOlder := false
	var latest int64
	if known > 0 && s.holdsSamples() {
		if latest, err = s.latestStamp(); err != nil {
			return 0, err
		}
		isOlder = latest < known
	}
	switch {
	case t.Discard == s.Log && !isOlder:
		return 0, fmt.Errorf("log %s is not lost: it is in %s", t.Discard, s.Path())
	case !isOlder || t.Discard == s.Log:
		return known, nil
	}
	what := "the store has all samples of the log: move this directory away"
	if slices.ContainsFunc(logs, func(l meta.Log) bool { return l.ID == s.Log }) {
		what = "the store waits for the samples of the log: put the latest one in its place. If its end is lost, start once with --buffer.discard-lost-log=" + s.Log +
			", which replays what is here; samples that were deleted since may come back"
	}
	return 0, fmt.Errorf("%w: %s ends with a request of %s, and the store knows requests of this log up to %s. It is an older copy, or its end is lost; %s",
		ErrOlderLog, s.Path(), stampText(latest), stampText(known), what)
}

func stampText(stamp int64) string {
	return time.UnixMilli(stamp).UTC().Format("2006-01-02T15:04:05.000Z")
}

// checkBinding compares the bindings of a log that holds samples with the store.
func (t *Terms) checkBinding(s *dirState) error {
	want := t.binding()
	if s.Binding != (Binding{}) {
		if err := t.compareBindings(s.Binding, want, s.Path(), s.Location); err != nil {
			return err
		}
	}
	for _, head := range slices.Concat(s.heads, s.rowFiles) {
		if head.blank {
			continue
		}
		if err := t.compareBindings(head.Binding, want, filepath.Join(s.Path(), head.name), ""); err != nil {
			return err
		}
	}
	return nil
}

// compareBindings compares the binding of a log, or of a segment, with the wanted one.
func (t *Terms) compareBindings(got, want Binding, what, location string) error {
	if location != "" {
		location = " (" + location + ")"
	}
	switch {
	case got == want:
		return nil
	case got.Store != want.Store:
		return fmt.Errorf("%w: %s holds samples of store %s%s, and this is %s", ErrForeignLog, what, got.Store, location, t.describeStore())
	}
	return fmt.Errorf("%w: %s holds samples of schema %s, and store %s has schema %s", ErrForeignLog, what, got.Schema, t.describeStore(), want.Schema)
}

func (t *Terms) describeStore() string {
	id := t.Store.Identity()
	if id == "" {
		id = "a store without an identity"
	}
	return fmt.Sprintf("%s (%s)", id, t.Location)
}

func (t *Terms) logger() log.Logger {
	if t.Logger == nil {
		return log.NewNopLogger()
	}
	return t.Logger
}

// discard removes a lost log from META. It may be nil. hasSamples says that its samples are in the
// directory, without its ID.
func (t *Terms) discard(ctx context.Context, lost *meta.Log, hasSamples bool) error {
	logger := t.logger()
	switch {
	case t.Discard == "":
		return nil
	case lost == nil:
		level.Warn(logger).Log("msg", "no log to discard: META lists none with this ID", "log", t.Discard)
		return nil
	}
	remove := t.Store.RemoveLog
	if t.Store.Traits().Shared {
		remove = t.Store.ForgetLog
	}
	if err := remove(ctx, lost.ID); err != nil {
		return err
	}
	if hasSamples {
		level.Warn(logger).Log("msg", "the log gets another ID, and its samples are replayed", "log", lost.ID, "path", lost.Path)
		return nil
	}
	level.Error(logger).Log("msg", "a lost log is discarded: samples that were acknowledged and not stored yet are lost",
		"log", lost.ID, "path", lost.Path, "host", lost.Host, "last_seen", time.UnixMilli(lost.Seen).UTC(), "bytes", lost.Bytes)
	return nil
}

// hasSamplesOf says whether the log in the directory is the lost one, whose identity was lost.
// Then the directory has a new one, without a binding, and META lists the log by its previous
// ID. exclusive says that the store has no other log.
func (s *dirState) hasSamplesOf(lost *meta.Log, logs []meta.Log, exclusive bool) bool {
	if lost == nil || !s.holdsSamples() || s.Binding != (Binding{}) || slices.ContainsFunc(logs, func(l meta.Log) bool { return l.ID == s.Log }) {
		return false
	}
	return exclusive || lost.Host == hostname() && lost.Path == s.absPath()
}

// describe returns the row of META for the log, which has this size.
func (d *Dir) describe(now time.Time, bytes int64) meta.Log {
	return meta.Log{ID: d.state.Log, Host: hostname(), Path: d.state.absPath(), InRows: d.rows != nil, Seen: now.UnixMilli(), Bytes: bytes}
}

func (s *dirState) absPath() string {
	if _, onDisk := s.Dir.(durable.OS); !onDisk {
		return s.Path()
	}
	path, err := filepath.Abs(s.Path())
	if err != nil {
		return s.Path()
	}
	return path
}

// register writes the row of the log to META, if the log is bound to a store.
func (d *Dir) register(ctx context.Context, l meta.Log) error {
	if d.store == nil {
		return nil
	}
	return d.store.PutLog(ctx, l)
}

// note writes the stamp of a durable request of the log to META, if it is later than what META has. Only one call may run at a time.
func (d *Dir) note(ctx context.Context, stamp int64) error {
	if d.store == nil || stamp <= d.metaStamp {
		return nil
	}
	if err := d.store.PutLogStamp(ctx, d.state.Log, stamp); err != nil {
		return err
	}
	d.metaStamp = stamp
	return nil
}

// deregister removes the log from META: the store holds all its samples, up to a stamp.
func (d *Dir) deregister(ctx context.Context, stamp int64) error {
	if d.store == nil {
		return nil
	}
	if d.rows != nil { // no start finds the log again
		return errors.Join(d.store.RemoveLog(ctx, d.state.Log), d.store.RemoveLogStamp(ctx, d.state.Log))
	}
	if err := d.note(ctx, stamp); err != nil {
		return err
	}
	return d.store.RemoveLog(ctx, d.state.Log)
}
