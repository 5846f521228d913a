package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

const commandCheck = "check"

// What check repairs, each kind only if it is asked for.
const (
	repairLog   = "log"
	repairIndex = "index"
	// noRepair is the kind of damage of the store's files.
	noRepair = ""
)

// checkCommand adds the subcommand check.
func (o *options) checkCommand(app *kingpin.Application) {
	check := app.Command(commandCheck, "Read the log and the store, and say what is damaged or missing, without a change of any file. No adapter may use them, except for Bigtable. "+
		"Ends with 0 if all is well. On Bigtable it reads every row of the store, and the log with --buffer.enabled; the rest is for the embedded store.")
	check.Flag("repair", "Repair what was found: log moves the damaged end of a segment of the log to a file beside it; "+
		"index writes missing rows of the index, and the row of META with the schema and the identity of the embedded store, of which there is a copy in SCHEMA. Repeatable. Run it without this flag first: it says what each would do.").
		EnumsVar(&o.repairs, repairLog, repairIndex)
}

// errWrong says that a check found something that is not repaired.
var errWrong = errors.New("not all is well")

// A checker runs check.
type checker struct {
	o      *options
	logger log.Logger
	// found counts the findings that are not repaired, by what repairs them.
	found map[string]int
	// logged is when progress was last logged; rows and bytes are what was read since a
	// part began.
	logged      time.Time
	rows, bytes int64
}

// checkStored checks the log and the store.
func checkStored(ctx context.Context, o *options, logger log.Logger) error {
	if o.traits().OnDisk {
		if err := snapshot.CheckRestored(o.path); err != nil {
			return err
		}
	}
	c := &checker{o: o, logger: logger, found: make(map[string]int)}
	if o.traits().OnDisk || o.buffered {
		if err := c.checkLog(ctx); err != nil {
			return err
		}
	}
	if o.traits().OnDisk {
		if err := c.checkTables(ctx); err != nil {
			return err
		}
	}
	if c.found[noRepair] > 0 {
		c.print("the rows and the index are not checked: the store is damaged")
	} else if err := c.checkRows(ctx); err != nil {
		return err
	}
	if n := c.left(); n > 0 {
		return fmt.Errorf("%w: %d problems are left", errWrong, n)
	}
	c.print("all is well")
	return nil
}

func (c *checker) left() (n int) {
	for _, found := range c.found {
		n += found
	}
	return n
}

func (c *checker) print(format string, args ...any) { fmt.Fprintf(c.o.out, format+"\n", args...) }

func (c *checker) repairs(kind string) bool { return slices.Contains(c.o.repairs, kind) }

// report prints a finding that this kind of repair is for.
func (c *checker) report(kind string, f bucketstore.Finding) {
	switch {
	case f.Repair == "":
		c.print("%s; nothing repairs it: restore the snapshot (adapter restore)", f)
	case f.Repaired:
		c.print("%s; repaired: %s", f, f.Repair)
		return
	default:
		c.print("%s; --repair=%s would %s", f, kind, f.Repair)
	}
	c.found[kind]++
}

// progressInterval is the time between two log lines about the progress.
const progressInterval = 10 * time.Second

// progress logs now and then how much of a part was read.
func (c *checker) progress(part string, rows, bytes int64) {
	c.rows, c.bytes = c.rows+rows, c.bytes+bytes
	if time.Since(c.logged) >= progressInterval {
		c.logProgress("checking", part)
	}
}

func (c *checker) logProgress(msg, part string) {
	c.logged = time.Now()
	level.Info(c.logger).Log("msg", msg, "part", part, "rows", c.rows, "bytes", c.bytes)
}

// begin begins a part.
func (c *checker) begin(part string) {
	c.rows, c.bytes = 0, 0
	c.logProgress("checking", part)
}

// checkLog checks the log beside the store.
func (c *checker) checkLog(ctx context.Context) error {
	c.begin("the log")
	err := buffer.Check(ctx, c.o.bufferPath, buffer.CheckConfig{
		Repair:   c.repairs(repairLog),
		Report:   func(f bucketstore.Finding) { c.report(repairLog, f) },
		Note:     func(where, what string) { c.print("%s: %s", where, what) },
		Progress: func(bytes int64) { c.progress("the log", 0, bytes) },
	})
	c.logProgress("checked", "the log")
	return err
}

// checkTables checks the tables of the embedded store.
func (c *checker) checkTables(ctx context.Context) error {
	const part = "tables"
	c.begin(part)
	damaged, err := c.damagedTables(ctx, part)
	if errors.Is(err, series.ErrCorrupt) {
		c.report(noRepair, bucketstore.Finding{Where: c.o.path, What: err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	c.logProgress("checked", part)
	for i := range damaged {
		d := &damaged[i]
		c.report(noRepair, bucketstore.Finding{Where: filepath.Join(c.o.path, d.Name), What: fmt.Sprintf("%v; %d bytes cannot be read: %s", d.Err, d.LostBytes, strings.Join(d.Lost, "; "))})
	}
	return nil
}

func (c *checker) damagedTables(ctx context.Context, part string) ([]pebble.DamagedTable, error) {
	store, err := pebble.Open(c.readOnly())
	if err != nil {
		return nil, err
	}
	damaged, err := store.CheckTables(ctx, func(bytes int64) { c.progress(part, 0, bytes) })
	return damaged, errors.Join(err, closing("close the store", store.Close()))
}

// config is for the embedded store.
func (c *checker) config() pebble.Config {
	return pebble.Config{Dir: c.o.path, Existing: true, Tables: c.o.tables(), Now: time.Now, Logger: c.logger}
}

func (c *checker) readOnly() pebble.Config {
	cfg := c.config()
	cfg.ReadOnly = true
	return cfg
}

// openRows opens the store to read its rows, and to write those of the index if they are to
// be repaired.
func (c *checker) openRows(ctx context.Context) (bucketstore.Store, error) {
	if c.o.traits().OnDisk && !c.repairs(repairIndex) {
		return pebble.Open(c.readOnly())
	}
	return openStore(ctx, c.o.forExisting(), c.logger, nil, nil)
}

// checkRows checks what is in the store: its schema, the log that it waits for, all rows, and
// the index.
func (c *checker) checkRows(ctx context.Context) (err error) {
	schema, err := newSchema(c.o)
	if err != nil {
		return err
	}
	store, err := c.openRows(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing("close the store", store.Close())) }()
	terms, err := c.checkSchema(ctx, schema, store)
	if err != nil || terms.Store == nil {
		return err
	}
	if err := c.checkBinding(ctx, terms); err != nil {
		return err
	}
	horizons, err := terms.Store.Horizons(ctx)
	if err != nil {
		return err
	}
	tenants, err := terms.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range tenants {
		if t.Dropped == 0 {
			names = append(names, t.Name)
		}
	}
	part := ""
	result, err := engine.Check(ctx, engine.CheckConfig{
		Store:   bucketstore.Retrying(store),
		Schema:  schema,
		Tenants: names,
		Horizon: horizons[rollup.Raw],
		Repair:  c.repairs(repairIndex),
		Report:  func(f bucketstore.Finding) { c.report(repairIndex, f) },
		Progress: func(table bucketstore.Table, rows, bytes int64) {
			if name := table.String(); part != name {
				part = name
				c.begin(part)
			}
			c.progress(part, rows, bytes)
		},
	})
	if err != nil {
		return err
	}
	c.logProgress("checked", part)
	c.print("%d series have samples and an index, counted in each index period; %d more have an index and no samples yet, which is no fault", result.Indexed, result.Unused)
	return nil
}

// checkSchema checks that the store has this schema, and writes a lost one back if that is
// to be repaired. The Store of the terms is nil if the schema is lost.
func (c *checker) checkSchema(ctx context.Context, schema series.Schema, store bucketstore.Store) (buffer.Terms, error) {
	terms, err := newTerms(ctx, c.o, schema, store, c.logger)
	if err == nil {
		return terms, c.checkSchemaCopy(ctx, terms.Store)
	}
	if !errors.Is(err, meta.ErrLostSchema) {
		return terms, err
	}
	f := bucketstore.Finding{Where: fmt.Sprintf("row %q of %s", series.MetaSchema, bucketstore.Meta), What: err.Error()}
	if terms.Store.CanRestore() {
		f.Repair = "write it back from its copy"
		if c.repairs(repairIndex) {
			if err := terms.Store.RestoreSchema(ctx); err != nil {
				return terms, err
			}
			f.Repaired = true
			c.report(repairIndex, f)
			return newTerms(ctx, c.o, schema, store, c.logger)
		}
	}
	c.report(repairIndex, f)
	c.print("the rows and the index are not checked: the schema is lost")
	return buffer.Terms{}, nil
}

// checkSchemaCopy checks the copy of the schema, and writes it anew if that is to be repaired.
func (c *checker) checkSchemaCopy(ctx context.Context, store *meta.Store) error {
	err := store.CopyError()
	if err == nil {
		return nil
	}
	f := bucketstore.Finding{Where: "the copy of the schema", What: err.Error(), Repair: "write it anew, as the next start does", Repaired: c.repairs(repairIndex)}
	if f.Repaired {
		if err := store.Init(ctx); err != nil {
			return err
		}
	}
	c.report(repairIndex, f)
	return nil
}

// checkBinding checks that the log belongs to the store. A log that cannot be read was
// reported before.
func (c *checker) checkBinding(ctx context.Context, terms buffer.Terms) error {
	if c.found[repairLog] > 0 || !c.o.traits().OnDisk && !c.o.buffered {
		return nil
	}
	if err := adviseLog(c.o, terms.CheckBinding(ctx, c.o.bufferPath)); err != nil {
		c.print("%v", err)
		c.found[repairLog]++
	}
	return nil
}
