package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log/level"
	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// retentionOptions are the flags about retention.
type retentionOptions struct {
	// raw is how long raw samples are kept. 0 is for ever.
	raw model.Duration
	// rollups are how long rollups are kept, by resolution.
	rollups [rollup.NumResolutions]rollupAge
	// file is that of rules. Empty is none.
	file  string
	rules []retention.Rule
	// selector is that of retention explain.
	selector string
	// size is how many bytes the embedded store may take. 0 is no limit.
	size byteSize
}

// A rollupAge is a flag such as 2y, or off.
type rollupAge time.Duration

const rollupsOff = "off"

// Set implements kingpin.Value.
func (a *rollupAge) Set(text string) error {
	if text == rollupsOff {
		*a = rollupAge(timeline.Off)
		return nil
	}
	d, err := model.ParseDuration(text)
	*a = rollupAge(d)
	return err
}

func (a *rollupAge) String() string {
	if time.Duration(*a) == timeline.Off {
		return rollupsOff
	}
	return model.Duration(*a).String()
}

// resolutionFlag is the name of the flag that says how long a resolution is kept.
func resolutionFlag(r rollup.Resolution) string { return "retention.resolution-" + r.String() }

// keep returns how long the store keeps each resolution: the longest of the flags and all rules.
func (r *retentionOptions) keep() bucketstore.Retention { return retention.Longest(r.flags(), r.rules) }

// flags returns how long each resolution is kept of series that no rule matches.
func (r *retentionOptions) flags() (keep bucketstore.Retention) {
	for of := range r.rollups {
		keep[of] = time.Duration(r.rollups[of])
	}
	keep[rollup.Raw] = time.Duration(r.raw)
	return keep
}

func (o *options) retentionFlags(app *kingpin.Application) {
	app.Flag(resolutionFlag(rollup.Raw), fmt.Sprintf("How long samples are kept, such as 90d or 2y, at least %s. Older ones are not shown, and refused. 0 is for ever.", model.Duration(retention.MinRaw))).
		Default("0s").SetValue(&o.retention.raw)
	for _, r := range rollup.Downsampled {
		app.Flag(resolutionFlag(r), fmt.Sprintf("How long rollups of %s are kept, such as 2y, at least as long as what they are made of. 0 is for ever. With off none are made, and those that were go with what they were made of.", r)).
			Default("0s").SetValue(&o.retention.rollups[r])
	}
	app.Flag("retention.rules", "File, as YAML, that says how long the series of a selector are kept, where that differs from the flags above.").
		StringVar(&o.retention.file)
	o.retention.size.flag = "retention.size"
	app.Flag(o.retention.size.flag, "Size of the embedded store on the disk, without the log of the buffer, beyond which its oldest days go, but for the newest 3. 0 is no limit.").
		Default("0B").SetValue(&o.retention.size)
}

// checkRetention checks the flags about retention, and reads the file of rules.
func (o *options) checkRetention() error {
	flags := o.retention.flags()
	err := retention.Check(flags, func(of rollup.Resolution, age time.Duration) string {
		return fmt.Sprintf("--%s=%s", resolutionFlag(of), model.Duration(age))
	})
	if err == nil && o.retention.file != "" {
		err = o.retention.readRules(flags, o.tenancy.enabled)
	}
	return err
}

// text says how long samples are kept, as Prometheus says it.
func (r *retentionOptions) text() string {
	raw := model.Duration(r.keep()[rollup.Raw])
	switch {
	case raw == 0 && r.size.Base2Bytes == 0:
		return "for ever"
	case raw == 0:
		return r.size.String()
	case r.size.Base2Bytes == 0:
		return raw.String()
	}
	return raw.String() + " or " + r.size.String()
}

// resolutions returns what is kept when the clock says now: the longest of the flags and all rules.
func (a *adapter) resolutions(now time.Time) (kept []api.Resolution) {
	keep := a.o.retention.keep()
	for of := range rollup.NumResolutions {
		if keep[of] != timeline.Off {
			kept = append(kept, api.Resolution{Name: of.String(), Age: keep[of], From: a.retention.Shown(of, now)})
		}
	}
	return kept
}

// tables returns the tables as the store is opened with them, on Bigtable with the ages of
// new ones. The embedded store deletes no samples by age, but what the retention lets it
// delete.
func (o *options) tables() []bucketstore.TableSpec {
	if !o.traits().OwnAges {
		return bucketstore.Tables(bucketstore.Retention{})
	}
	ages := timeline.Ages(o.retention.keep())
	for r := range ages {
		if ages[r] > 0 {
			ages[r] += retention.StoreGrace
		}
	}
	tables := bucketstore.Tables(ages)
	if o.hasRowLog() {
		tables = append(tables, bucketstore.LogTable())
	}
	return tables
}

// An ager is a store that deletes cells by age itself.
type ager interface {
	Tables() []bucketstore.TableSpec
}

// keptTables returns the tables with the ages to which their families keep cells.
func (o *options) keptTables(rows bucketstore.Store) []bucketstore.TableSpec {
	if store, ok := rows.(ager); ok {
		return store.Tables()
	}
	return bucketstore.Tables(timeline.Ages(o.retention.keep()))
}

// storeAges returns the least ages at which cells of each resolution are deleted in tables,
// exemplars aside. 0 is never.
func storeAges(tables []bucketstore.TableSpec) (least bucketstore.Retention) {
	for _, f := range tables[bucketstore.Metric].Families {
		age := &least[rollup.ResolutionOf(f.Name)]
		if f.Name != series.FamilyExemplar && f.MaxAge > 0 && (*age == 0 || f.MaxAge < *age) {
			*age = f.MaxAge
		}
	}
	return least
}

// An expirer is a store on the local disk that deletes what it is told to.
type expirer interface {
	ExpireBefore(r rollup.Resolution, cut int64)
	Usage() (bucketstore.Usage, error)
}

// sharedRetention returns how long all adapters of a store on Bigtable keep each resolution, and whether META says so. If not, it is as long as
// the tables or the flags of this adapter keep it, which is the first one.
func (o *options) sharedRetention(ctx context.Context, about *meta.Store, rows bucketstore.Store) (keep bucketstore.Retention, ok bool, err error) {
	keep, ok, err = about.Retention(ctx)
	if ok || err != nil && !errors.Is(err, meta.ErrNoSchema) {
		return keep, ok, err
	}
	keep = o.retention.keep()
	for of, age := range storeAges(o.keptTables(rows)) {
		if age > retention.StoreGrace {
			age -= retention.StoreGrace
		}
		if keep[of] != timeline.Off && retention.Longer(age, keep[of]) {
			keep[of] = age
		}
	}
	return keep, false, nil
}

// checkShared refuses flags by which this adapter would let go what others keep.
func (a *adapter) checkShared(ctx context.Context, about *meta.Store, rows bucketstore.Store) error {
	if !rows.Traits().OwnAges {
		return nil
	}
	shared, ok, err := a.o.sharedRetention(ctx, about, rows)
	if err != nil {
		return err
	}
	says := "META/schema says"
	if !ok {
		says = "the garbage collection of the tables says"
	}
	for of, own := range a.o.retention.keep() {
		if retention.Longer(shared[of], own) {
			return fmt.Errorf("--%s: this adapter would keep %s, and %s that all adapters of the store keep %s: give it the flags of the others; "+
				"or, to keep less in the whole store, run adapter schema apply with the flags of this one, and restart the others with them",
				resolutionFlag(rollup.Resolution(of)), ageText(own), says, ageText(shared[of]))
		}
	}
	return nil
}

// shareRetention writes to META how long samples are kept, if no adapter has done so before, and checks what META says. The store has its schema.
func (a *adapter) shareRetention(ctx context.Context, rows bucketstore.Store) error {
	if !rows.Traits().OwnAges {
		return nil
	}
	shared, ok, err := a.o.sharedRetention(ctx, a.meta, rows)
	if err == nil && !ok {
		_, err = a.meta.SetRetention(ctx, nil, shared) // or another adapter does
	}
	if err != nil {
		return err
	}
	if shared, _, err = a.o.sharedRetention(ctx, a.meta, rows); err != nil {
		return err
	}
	for of, own := range a.o.retention.keep() {
		if retention.Longer(own, shared[of]) {
			level.Warn(a.logger).Log("msg", "META/schema says that the adapters of this store keep less than the flags of this one", "resolution", rollup.Resolution(of),
				"flags", ageText(own), "store", ageText(shared[of]), "to_keep_more", "adapter schema apply")
		}
	}
	return a.checkShared(ctx, a.meta, rows)
}

// ageText writes how long a resolution is kept, as a flag has it, but 0.
func ageText(age time.Duration) string {
	if age == 0 {
		return "for ever"
	}
	return (*rollupAge)(&age).String()
}

// openRetention begins to delete old samples. The store has its schema.
func (a *adapter) openRetention(ctx context.Context, rows bucketstore.Store) (err error) {
	if err := a.shareRetention(ctx, rows); err != nil {
		return err
	}
	cfg := retention.Config{Meta: a.meta, Now: a.o.now, Logger: a.logger, Registerer: a.reg}
	cfg.Days = a.days
	a.kept = a.o.keptTables(rows)
	if !a.o.readOnly { // else nothing is cut that an adapter has not cut before
		cfg.Keep = a.o.retention.keep()
		if store, ok := rows.(expirer); ok {
			cfg.Expire = store.ExpireBefore
			cfg.Usage, cfg.Size = store.Usage, uint64(a.o.retention.size.Base2Bytes)
		} else {
			cfg.StoreAge = storeAges(a.kept)
		}
		if len(a.o.resolutions()) > 0 {
			cfg.Release = a.release
		}
	}
	if a.retention, err = retention.Open(ctx, cfg); err == nil {
		a.rules, err = retention.OpenRules(ctx, a.o.rulesConfig(a.meta, a.schema, a.logger))
	}
	if err == nil {
		a.retention.SetRules(a.rules)
	}
	return err
}
