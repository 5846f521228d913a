package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
)

// A sharedChange is what schema apply changes of what all adapters share: how long samples are kept, and the horizons.
type sharedChange struct {
	// keep is what META says of the retention, or nil, and wanted what the flags say.
	keep   *bucketstore.Retention
	wanted bucketstore.Retention
	// isChanged says that they differ.
	isChanged bool
	// from are the horizons, and to what they may be: those that are later hide samples which are kept and cannot have been deleted.
	from, to meta.Horizons
}

// differs says whether anything changes.
func (c *sharedChange) differs() bool { return c.isChanged || c.from != c.to }

// readShared returns what is to change. It is nothing before an adapter has used the store, and while it cannot be opened: then the first
// adapter shares its flags, or the next schema apply changes them.
func (s *schemaApply) readShared(ctx context.Context, all []bigtable.Policy) (c sharedChange, err error) {
	if slices.ContainsFunc(all, func(p bigtable.Policy) bool {
		return p.Missing || p.Table == bucketstore.Meta && !p.AsWanted
	}) {
		return c, nil
	}
	o := *s.o
	o.createTables = false
	c.wanted = o.retention.keep()
	err = o.withMeta(ctx, log.NewNopLogger(), func(store *meta.Store) error {
		keep, ok, err := store.Retention(ctx)
		if errors.Is(err, meta.ErrNoSchema) {
			return nil
		}
		if err != nil {
			return err
		}
		if ok {
			c.keep = &keep
		}
		c.isChanged = !ok || keep != c.wanted
		if c.from, err = store.Horizons(ctx); err != nil {
			return err
		}
		deleted, err := store.Deleted(ctx)
		c.to = s.lowered(c.from, deleted, all)
		return err
	})
	return c, err
}

// lowered returns horizons without what hides samples that are to be kept, and that Bigtable cannot have deleted: by the policies of now,
// by those before, whose times are in META, and by those to come.
func (s *schemaApply) lowered(from, deleted meta.Horizons, all []bigtable.Policy) meta.Horizons {
	ages := timeline.Ages(s.o.retention.keep())
	to := deleted
	for r := range to {
		if ages[r] > 0 {
			to[r] = max(to[r], s.o.now().Add(-ages[r]).UnixMilli())
		}
		for _, p := range all {
			for _, age := range []time.Duration{p.FoundAge, p.WantedAge} {
				if hides(p, rollup.Resolution(r)) && age > 0 {
					to[r] = max(to[r], s.cut(age))
				}
			}
		}
		to[r] = min(to[r], from[r])
	}
	return to
}

// show prints what changes.
func (c *sharedChange) show(s *schemaApply) {
	for r := range c.wanted {
		of := rollup.Resolution(r)
		if c.isChanged && (c.keep == nil || c.keep[r] != c.wanted[r]) {
			found := "what its flags say"
			if c.keep != nil {
				found = ageText(c.keep[r])
			}
			fmt.Fprintf(s.o.out, "resolution %s: each adapter keeps %s now, and will keep %s\n", of, found, ageText(c.wanted[r]))
		}
		if c.to[r] < c.from[r] {
			until := "all that is stored"
			if c.to[r] > 0 {
				until = "what is from " + timeOf(c.to[r]) + " on"
			}
			fmt.Fprintf(s.o.out, "resolution %s: what is before %s is hidden, though Bigtable has not deleted it: %s will be shown again\n", of, timeOf(c.from[r]), until)
		}
	}
}

// share changes what adapters share. raised are the times to which horizons were raised meanwhile.
func (s *schemaApply) share(ctx context.Context, store *meta.Store, c sharedChange, raised meta.Horizons) error {
	if c.isChanged {
		set, err := store.SetRetention(ctx, c.keep, c.wanted)
		if err == nil && !set {
			err = errors.New("what adapters share has changed since it was shown: run schema apply again")
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(s.o.out, "changed what all adapters keep")
	}
	for r := range c.from {
		c.from[r] = max(c.from[r], raised[r])
		c.to[r] = max(c.to[r], raised[r])
	}
	if c.from == c.to {
		return nil
	}
	if _, err := store.LowerHorizons(ctx, c.from, c.to); err != nil {
		return fmt.Errorf("show again what was hidden: %w; run schema apply again", err)
	}
	fmt.Fprintln(s.o.out, "changed the horizons; adapters show what was hidden within some minutes")
	return nil
}
