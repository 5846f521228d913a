package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs/downsample"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const commandSchemaApply = "schema apply"

// policyDelay is how long after a change Bigtable may still delete by the old rule, and how
// far its clock may be ahead of ours.
const policyDelay = time.Hour

// schemaOptions are the flags of schema apply.
type schemaOptions struct {
	dryRun, yes bool
}

func (o *options) schemaCommand(app *kingpin.Application) {
	schema := app.Command("schema", "The tables and column families in Bigtable, and at which age it deletes cells.")
	apply := schema.Command("apply", "Make Bigtable delete at the ages that the flags about retention want, let all adapters of the store share these flags, and create missing tables and families. "+
		"Samples that a shorter retention has hidden, and that Bigtable cannot have deleted, are shown again. Shows the changes and asks first. No other command, and no start, changes these ages.")
	apply.Flag("dry-run", "Show the changes only.").BoolVar(&o.schema.dryRun)
	apply.Flag("yes", "Do not ask.").BoolVar(&o.schema.yes)
}

// checkSchema checks the flags of schema apply.
func (o *options) checkSchema() error {
	if o.schema.dryRun && o.schema.yes {
		return errors.New("--dry-run changes nothing: leave it out, or --yes")
	}
	return nil
}

// applySchema runs schema apply.
func applySchema(ctx context.Context, o *options, _ log.Logger) error {
	s := schemaApply{o: o}
	if isTerminal(o.in) {
		s.terminal = o.in
	}
	if made := o.resolutions(); len(made) > 0 {
		s.unrolled = s.unreleased
	}
	return s.run(ctx)
}

// unreleased returns the days before cut whose rollups are not final.
func (s *schemaApply) unreleased(ctx context.Context, cut int64) (days []string, err error) {
	err = s.o.withRows(ctx, log.NewNopLogger(), func(rows bucketstore.Store, schema series.Schema) error {
		known, err := downsample.Open(ctx, downsample.Config{Store: rows, Schema: schema, Now: s.o.now})
		if err == nil {
			days, err = known.Unreleased(ctx, cut)
		}
		return err
	})
	return days, err
}

// A schemaApply is one run of schema apply.
type schemaApply struct {
	o *options
	// terminal answers questions. It is nil if there is none.
	terminal io.Reader
	// unrolled returns the days before a time, in milliseconds, whose samples are in the store
	// and whose rollups are not, as text. It is nil while no rollups are made.
	unrolled func(ctx context.Context, cut int64) ([]string, error)
}

// run shows the changes, asks, and makes them. If it ends early, what is left is shown by the
// next run.
func (s *schemaApply) run(ctx context.Context) (err error) {
	if !s.o.traits().OwnAges {
		fmt.Fprintln(s.o.out, "nothing to apply: the embedded store deletes by the flags alone; with Bigtable add --storage.backend=bigtable")
		return nil
	}
	admin, err := bigtable.OpenAdmin(ctx, bigtableConfig(s.o))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("close the connections", admin.Close())) }()
	all, err := admin.Policies(ctx)
	if err != nil {
		return err
	}
	changes := slices.DeleteFunc(slices.Clone(all), func(p bigtable.Policy) bool { return p.AsWanted })
	if err := s.show(all); err != nil {
		return err
	}
	shared, err := s.readShared(ctx, all)
	if err != nil {
		return err
	}
	shared.show(s)
	if len(changes) == 0 && !shared.differs() {
		fmt.Fprintln(s.o.out, "nothing to apply: all is as wanted")
		return nil
	}
	lost := s.allowed(ctx, changes)
	if lost != nil && !(errors.Is(lost, errUnrolled) && shared.isChanged) {
		return lost
	}
	if s.o.schema.dryRun {
		if lost == nil {
			fmt.Fprintf(s.o.out, "%d families would change; nothing was changed\n", len(changes))
		}
		return lost
	}
	if lost != nil {
		changes = nil
	}
	if err := s.ask(len(changes)); err != nil {
		return err
	}
	switch again, err := admin.Policies(ctx); {
	case err != nil:
		return err
	case !slices.Equal(again, all):
		return errors.New("the families have changed since they were shown; nothing was changed: run schema apply again")
	}
	if err := s.apply(ctx, admin, changes, shared); err != nil {
		return err
	}
	if lost != nil {
		lost = fmt.Errorf("%w; adapters with these flags may start now, and make them: run schema apply again then", lost)
	}
	return lost
}

// show prints what is and what will be.
func (s *schemaApply) show(all []bigtable.Policy) error {
	table := tabwriter.NewWriter(s.o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TABLE\tFAMILY\tFOUND\tWANTED\tMEANING")
	for _, p := range all {
		found := p.Found
		switch {
		case p.Missing:
			found = "missing"
		case found == "":
			found = "no rule"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", p.TableName, p.Family, found, p.Wanted, s.meaning(p))
	}
	return table.Flush()
}

// meaning says what it means that a family gets the wanted garbage collection.
func (s *schemaApply) meaning(p bigtable.Policy) string {
	switch {
	case p.Missing:
		return "is created"
	case p.AsWanted:
		return "as wanted"
	}
	text := "older versions of cells are deleted"
	switch {
	case retention.Longer(p.FoundAge, p.WantedAge):
		text = fmt.Sprintf("cells older than %s (before %s) will be deleted, which are kept %s now", age(p.WantedAge), s.before(p.WantedAge), kept(p.FoundAge))
	case retention.Longer(p.WantedAge, p.FoundAge):
		text = fmt.Sprintf("cells will be kept %s, and not be deleted at the age of %s", kept(p.WantedAge), age(p.FoundAge))
		if p.Table == bucketstore.Index || hides(p, rollup.ResolutionOf(p.Family)) {
			text += fmt.Sprintf("; what is before %s stays hidden", s.before(p.FoundAge))
		}
	}
	if p.Foreign {
		text += "; the rule found is not the adapter's, someone has set it"
	}
	return text
}

func (s *schemaApply) before(age time.Duration) string {
	return timeOf(s.cut(age))
}

func timeOf(t int64) string { return time.UnixMilli(t).UTC().Format(time.RFC3339) }

// cut returns the time before which cells of an age may be deleted until its rule has
// changed, in milliseconds.
func (s *schemaApply) cut(age time.Duration) int64 {
	now := s.o.now()
	return min(now.Add(policyDelay-age).UnixMilli(), now.UnixMilli())
}

func age(d time.Duration) string { return model.Duration(d).String() }

func kept(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	return "for " + age(d)
}

// hides says whether what METRIC has of a resolution cannot be read without the cells of a family.
func hides(p bigtable.Policy, r rollup.Resolution) bool {
	return p.Table == bucketstore.Index || p.Table == bucketstore.Metric && p.Family != series.FamilyExemplar && rollup.ResolutionOf(p.Family) == r
}

// horizons returns the times before which cells of each resolution may be deleted before or after the changes.
func (s *schemaApply) horizons(changes []bigtable.Policy) (cuts meta.Horizons) {
	for _, p := range changes {
		for r := range cuts {
			for _, age := range []time.Duration{p.FoundAge, p.WantedAge} {
				if !p.Missing && hides(p, rollup.Resolution(r)) && age > 0 {
					cuts[r] = max(cuts[r], s.cut(age))
				}
			}
		}
	}
	return cuts
}

// errUnrolled says that days of samples would be lost.
var errUnrolled = errors.New("days would be lost, for they have no rollup yet")

// allowed refuses changes that lose samples without a rollup, and what is missing if it may
// not be created.
func (s *schemaApply) allowed(ctx context.Context, changes []bigtable.Policy) error {
	if !s.o.createTables && slices.ContainsFunc(changes, func(p bigtable.Policy) bool { return p.Missing }) {
		return errors.New("tables or families are missing, and are not to be created: leave --no-bigtable.create-tables out")
	}
	var cut int64
	for _, p := range changes {
		if !p.Missing && hides(p, rollup.Raw) && retention.Longer(p.FoundAge, p.WantedAge) {
			cut = max(cut, s.cut(p.WantedAge))
		}
	}
	if s.unrolled == nil || cut == 0 {
		return nil
	}
	days, err := s.unrolled(ctx, cut)
	if err == nil && len(days) > 0 {
		err = fmt.Errorf("%d %w: %s; no family was changed", len(days), errUnrolled, strings.Join(days, ", "))
	}
	return err
}

// ask asks whether to go on.
func (s *schemaApply) ask(changes int) error {
	if s.o.schema.yes {
		return nil
	}
	if s.terminal == nil {
		return errors.New("there is no terminal to ask: give --yes to change the families, or --dry-run; nothing was changed")
	}
	question := fmt.Sprintf("Change %d families?", changes)
	if changes == 0 {
		question = "Change what all adapters share?"
	}
	fmt.Fprintf(s.o.out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(s.terminal).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed; nothing was changed")
}

// apply makes the changes. The store does not open while META is deleted by age, so that
// comes first. What is missing is created when it opens. Then the horizon is raised: what
// Bigtable has deleted in part, or will, stays hidden when a family keeps cells for longer. And
// what adapters share is changed: they may start with the flags then.
func (s *schemaApply) apply(ctx context.Context, admin *bigtable.Admin, changes []bigtable.Policy, shared sharedChange) error {
	set := func(wanted func(bigtable.Policy) bool) error {
		for _, p := range changes {
			if p.Missing || !wanted(p) {
				continue
			}
			if err := admin.SetPolicy(ctx, p); err != nil {
				return err
			}
			fmt.Fprintf(s.o.out, "changed family %s of %s to %s\n", p.Family, p.TableName, p.Wanted)
		}
		return nil
	}
	isMeta := func(p bigtable.Policy) bool { return p.Table == bucketstore.Meta }
	if err := set(isMeta); err != nil {
		return err
	}
	if err := s.raise(ctx, s.horizons(changes), shared); err != nil {
		return err
	}
	for _, p := range changes {
		if p.Missing {
			fmt.Fprintf(s.o.out, "created family %s of %s\n", p.Family, p.TableName)
		}
	}
	return set(func(p bigtable.Policy) bool { return !isMeta(p) })
}

// raise opens the store, which creates what is missing, raises the horizons to cuts, and changes what adapters share.
func (s *schemaApply) raise(ctx context.Context, cuts meta.Horizons, shared sharedChange) error {
	return s.o.withMeta(ctx, log.NewNopLogger(), func(store *meta.Store) error {
		if _, err := store.NoteDeleted(ctx, cuts); err != nil {
			return err
		}
		if err := s.share(ctx, store, shared, cuts); err != nil {
			return err
		}
		horizons, err := store.Horizons(ctx)
		for r, horizon := range horizons {
			if horizon > 0 {
				fmt.Fprintf(s.o.out, "resolution %s: what is before %s stays hidden: the horizon\n", rollup.Resolution(r), timeOf(horizon))
			}
		}
		return err
	})
}
