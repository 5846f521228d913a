package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"google.golang.org/grpc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

func TestSchemaFlags(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		refused string
	}{
		{[]string{"schema", "apply", "--yes"}, ""},
		{[]string{"schema", "apply", "--dry-run"}, ""},
		{[]string{"schema", "apply", "--dry-run", "--yes"}, "--dry-run changes nothing"},
		{[]string{"schema"}, "subcommand"},
		{[]string{"--yes"}, "--yes"},
	} {
		if o := parseOrRefuse(t, tt.args, tt.refused); o != nil && o.command != commandSchemaApply {
			t.Errorf("%v: %s", tt.args, o.command)
		}
	}
}

// A schemaWorld is an instance whose tables schema apply changes, and what it was asked.
type schemaWorld struct {
	t    *testing.T
	now  time.Time
	mu   sync.Mutex
	seen []string
	// fail is the method that fails.
	fail string
}

func newSchemaWorld(t *testing.T) *schemaWorld {
	w := &schemaWorld{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	t.Setenv("BIGTABLE_EMULATOR_HOST", bigtabletest.Serve(t, bigtabletest.WithServerOptions(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, method)
			if method == w.fail {
				return nil, errors.New("refused by the test")
			}
			return handler(ctx, req)
		}))))
	return w
}

// requests returns the requests so far of these methods, without repetitions, and forgets
// them.
func (w *schemaWorld) requests(methods ...string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := slices.DeleteFunc(w.seen, func(m string) bool { return !slices.Contains(methods, m) })
	w.seen = nil
	return slices.Compact(found)
}

// The methods that change something.
const (
	createTable  = "CreateTable"
	modifyFamily = "ModifyColumnFamilies"
	setHorizon   = "CheckAndMutateRow"
)

func (w *schemaWorld) changes() []string { return w.requests(createTable, modifyFamily, setHorizon) }

// options parses flags beside those of the instance.
func (w *schemaWorld) options(args ...string) *options {
	w.t.Helper()
	return parseOrRefuse(w.t, append(args, "--retention.resolution-5m=off", "--retention.resolution-1h=off", "--storage.backend=bigtable", "--bigtable.project=project", "--bigtable.instance=instance"), "")
}

// apply runs schema apply, with an answer if it is not empty, and wants an error with the
// text refused, unless that is empty.
func (w *schemaWorld) apply(answer io.Reader, refused string, args ...string) (output string) {
	w.t.Helper()
	return w.run(schemaApply{terminal: answer}, refused, args...)
}

func (w *schemaWorld) run(s schemaApply, refused string, args ...string) (output string) {
	w.t.Helper()
	var out bytes.Buffer
	s.o = w.options(append([]string{"schema", "apply"}, args...)...)
	s.o.out, s.o.now = &out, func() time.Time { return w.now }
	err := s.run(w.t.Context())
	if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		w.t.Fatalf("%v: error %v, want %q; the output is\n%s", args, err, refused, &out)
	}
	return out.String()
}

// want checks the ages of the families of METRIC, and the horizon.
func (w *schemaWorld) want(age time.Duration, horizon time.Time) {
	w.t.Helper()
	var logged bytes.Buffer
	rows, err := openStore(w.t.Context(), w.options("--no-bigtable.create-tables"), log.NewLogfmtLogger(&logged), nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for _, f := range rows.(ager).Tables()[bucketstore.Metric].Families {
		if f.MaxAge != age {
			w.t.Errorf("family %s keeps cells for %s, want %s", f.Name, f.MaxAge, age)
		}
	}
	about, err := meta.Open(w.t.Context(), rows, series.Schema{}, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	horizons, err := about.Horizons(w.t.Context())
	got := horizons[rollup.Raw]
	if want := horizon.UnixMilli(); err != nil || got != max(0, want) {
		w.t.Errorf("the horizon is %s, %v, want %s", time.UnixMilli(got).UTC(), err, horizon)
	}
}

func wantContains(t *testing.T, output string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("the output does not have %q:\n%s", part, output)
		}
	}
}

// rawFlag wants an age.
const rawFlag = "--retention.resolution-raw="

// TestSchemaApply changes ages of one instance, in all ways.
func TestSchemaApply(t *testing.T) {
	w := newSchemaWorld(t)
	const day = 24 * time.Hour
	never := time.UnixMilli(0)
	same := func(what string) {
		t.Helper()
		if got := w.changes(); len(got) > 0 {
			t.Errorf("%s: changed by %v", what, got)
		}
	}

	wantContains(t, w.apply(nil, "", "--dry-run", rawFlag+"90d"), "METRIC   c       missing", "is created", "13 families would change; nothing was changed")
	w.apply(nil, "are not to be created", "--yes", "--no-bigtable.create-tables")
	same("missing tables")
	wantContains(t, w.apply(nil, "", "--yes", rawFlag+"90d"), "created family c of METRIC", "created family m of META")
	w.want(97*day, never)
	w.changes()
	for range 2 {
		wantContains(t, w.apply(nil, "", rawFlag+"90d"), "as wanted", "nothing to apply")
	}

	// Longer: the horizon is raised first. What is asked, and not confirmed, changes nothing.
	longer := []string{"(versions() > 1 || age() > 97d)", "(versions() > 1 || age() > 372d)",
		"cells will be kept for 372d, and not be deleted at the age of 97d; what is before 2025-11-24T13:00:00Z stays hidden"}
	wantContains(t, w.apply(nil, "", "--dry-run", rawFlag+"365d"), append(longer, "11 families would change")...)
	w.apply(nil, "there is no terminal", rawFlag+"365d")
	for _, answer := range []string{"n\n", "\n", "", "yesterday\n"} {
		wantContains(t, w.apply(strings.NewReader(answer), "not confirmed; nothing was changed", rawFlag+"365d"), append(longer, "Change 11 families? [y/N]")...)
	}
	same("not confirmed")
	w.want(97*day, never)
	w.fail = setHorizon
	w.apply(nil, "store the horizon", "--yes", rawFlag+"365d")
	w.fail = ""
	w.want(97*day, never)
	w.changes()
	wantContains(t, w.apply(strings.NewReader("Y\n"), "", rawFlag+"365d"), append(longer, "resolution raw: what is before 2025-11-24T13:00:00Z stays hidden: the horizon", "changed family i of INDEX")...)
	if got := w.changes(); !slices.Equal(got, []string{setHorizon, modifyFamily}) {
		t.Errorf("the requests are %v", got)
	}
	horizon := w.now.Add(time.Hour - 97*day)
	w.want(372*day, horizon)
	wantContains(t, w.apply(nil, "", rawFlag+"365d"), "nothing to apply")

	// Shorter: not while rollups are missing.
	asked := int64(0)
	unrolled := func(_ context.Context, cut int64) ([]string, error) {
		asked = cut
		return []string{"2026-01-02", "2026-01-03"}, nil
	}
	w.changes()
	for _, flag := range []string{"--yes", "--dry-run"} {
		w.run(schemaApply{unrolled: unrolled}, "2 days would be lost, for they have no rollup yet: 2026-01-02, 2026-01-03", flag, rawFlag+"30d")
	}
	w.run(schemaApply{unrolled: func(context.Context, int64) ([]string, error) { return nil, io.ErrUnexpectedEOF }}, "unexpected EOF", "--yes", rawFlag+"30d")
	same("days without a rollup")
	shorter := w.now.Add(time.Hour - 37*day)
	if asked != shorter.UnixMilli() {
		t.Errorf("asked for days before %s", time.UnixMilli(asked).UTC())
	}
	asked = 0
	w.run(schemaApply{unrolled: unrolled}, "", "--dry-run", rawFlag+"400d")
	if asked != 0 {
		t.Error("asked for days that would be lost by a longer age")
	}
	wantContains(t, w.apply(nil, "", "--yes", rawFlag+"30d"), "cells older than 37d (before 2026-01-23T13:00:00Z) will be deleted, which are kept for 372d now", "changed family v of CURRENT")
	w.want(37*day, shorter)

	// For ever, and back again.
	wantContains(t, w.apply(nil, "", "--yes"), "cells will be kept for ever, and not be deleted at the age of 37d")
	w.want(0, shorter)
	w.now = w.now.Add(day)
	wantContains(t, w.apply(nil, "", "--yes", rawFlag+"30d"), "which are kept for ever now")
	w.want(37*day, shorter.Add(day))
}

// TestSchemaApplyRaces: if a family changes while schema apply asks, it does nothing.
func TestSchemaApplyRaces(t *testing.T) {
	w := newSchemaWorld(t)
	w.apply(nil, "", "--yes", rawFlag+"10d")
	w.changes()
	w.apply(meanwhile(func() {
		w.apply(nil, "", "--yes", rawFlag+"20d")
		w.changes()
	}), "have changed since they were shown", rawFlag+"30d")
	if got := w.changes(); len(got) > 0 {
		t.Errorf("changed by %v", got)
	}
}

// A meanwhile does something before it answers yes.
type meanwhile func()

func (do meanwhile) Read(p []byte) (int, error) {
	do()
	return copy(p, "y\n"), nil
}

// TestSchemaApplyMeta: if META is deleted by age a start is refused, and names the command
// that corrects it. The age of CURRENT moves no horizon, and META has none.
func TestSchemaApplyMeta(t *testing.T) {
	w := newSchemaWorld(t)
	cfg := bigtabletest.Config("")
	cfg.Tables = bucketstore.Tables(bucketstore.Retention{})
	cfg.Tables[bucketstore.Meta].Families[0].MaxAge = 1000 * time.Hour
	cfg.Tables[bucketstore.Current].Families[0].MaxAge = time.Hour
	cfg.Tables[bucketstore.Metric].Families[4].MaxAge = time.Hour // exemplars
	store, err := bigtable.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(t.Context(), w.options(), log.NewNopLogger(), nil, nil); err == nil || !strings.Contains(err.Error(), "adapter schema apply corrects it") {
		t.Errorf("a start: %v", err)
	}
	wantContains(t, w.apply(nil, "", "--yes"), "cells will be kept for 50d, and not be deleted at the age of 1h\n", "changed family m of META to versions() > 1\n", "changed family e of METRIC")
	w.want(0, time.UnixMilli(0))
	wantContains(t, w.apply(nil, "", "--dry-run"), "nothing to apply")
}

// TestSchemaMeaning: rules that someone has set are called so.
func TestSchemaMeaning(t *testing.T) {
	const foreign = "; the rule found is not the adapter's, someone has set it"
	s := schemaApply{o: &options{now: func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }}}
	for _, tt := range []struct {
		p    bigtable.Policy
		want string
	}{
		{bigtable.Policy{AsWanted: true, Foreign: true}, "as wanted"},
		{bigtable.Policy{Found: "versions() > 3", Foreign: true}, "older versions of cells are deleted" + foreign},
		{bigtable.Policy{Table: bucketstore.Current, FoundAge: time.Hour, WantedAge: 48 * time.Hour, Foreign: true}, "cells will be kept for 2d, and not be deleted at the age of 1h" + foreign},
		// An age of minutes would put the horizon into the future.
		{bigtable.Policy{Table: bucketstore.Index, FoundAge: time.Minute}, "cells will be kept for ever, and not be deleted at the age of 1m; what is before 2026-03-01T12:00:00Z stays hidden"},
	} {
		if got := s.meaning(tt.p); got != tt.want {
			t.Errorf("%+v:\n%s\nwant\n%s", tt.p, got, tt.want)
		}
	}
}

// TestSchemaApplyEmbedded: the embedded store has no ages to change.
func TestSchemaApplyEmbedded(t *testing.T) {
	var out bytes.Buffer
	s := schemaApply{o: parseOrRefuse(t, []string{"schema", "apply", "--storage.path=" + t.TempDir()}, "")}
	s.o.out = &out
	if err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantContains(t, out.String(), "nothing to apply: the embedded store")
}
