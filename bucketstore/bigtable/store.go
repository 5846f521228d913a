// Package bigtable keeps rows in Google Cloud Bigtable, or in its emulator.
//
// A table of package bucketstore is a Bigtable table of the same name behind a prefix, and
// a family is a column family of the same name. Cell times are Bigtable timestamps, so that
// the order in which writes arrive does not matter. A column may hold several versions
// until garbage collection has run; every read asks for the latest one only.
//
// All requests go through Google's client, which keeps the connections, retries transient
// errors and measures. Its objects for each cell cost more than the rest of a write. An
// encoder of our own saved 0.2 of a core at a million series, beside nine nodes, and gave
// up all of that.
//
// Bigtable bills by rows: one row mutation for each element of an Apply, one row read for
// each row of a Scan. Both are counted.
package bigtable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
)

// Store is a [bucketstore.Store] in Bigtable. Its methods may be called concurrently, but
// for Close.
type Store struct {
	clients
	tables       [bucketstore.NumTables]*table
	callTimeout  time.Duration
	adminTimeout time.Duration
	metrics      *metrics
	instance     string
	// emulated says that the server is an emulator.
	emulated bool
	// found are the tables as they were at Open.
	found []bucketstore.TableSpec
}

var _ bucketstore.Store = (*Store)(nil)

// A table is an open table and its families.
type table struct {
	name     string
	families map[string]bucketstore.FamilySpec
	rows     *bigtable.Table
}

// Open connects to an instance, creates or checks the tables of cfg and returns a store
// over them. It returns an error when tables or families are missing and may not be
// created, when META is collected by age, when a sum family is none, and when the app profile
// does not fit. The end of ctx ends Open, not the store.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Registerer, cfg.Tables)
	c, err := reach(ctx, cfg, m)
	if err != nil {
		return nil, err
	}
	s := &Store{
		clients:      c,
		callTimeout:  cfg.CallTimeout,
		adminTimeout: cfg.AdminTimeout,
		metrics:      m,
		instance:     cfg.Instance,
		emulated:     cfg.EmulatorHost != "",
	}
	if err := s.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open creates or checks the tables and opens them.
func (s *Store) open(ctx context.Context, cfg Config) error {
	if !s.emulated {
		if err := checkProfile(ctx, cfg); err != nil {
			return err
		}
	}
	sc := schemaCheck{admin: s.admin, cfg: cfg}
	if err := sc.run(ctx); err != nil {
		return err
	}
	s.found = sc.found
	for _, spec := range cfg.Tables {
		t := &table{name: cfg.tableName(spec.Table), families: make(map[string]bucketstore.FamilySpec, len(spec.Families))}
		for _, f := range spec.Families {
			t.families[f.Name] = f
		}
		t.rows = s.data.Open(t.name)
		s.tables[spec.Table] = t
	}
	return nil
}

// Close implements bucketstore.Store.
func (s *Store) Close() error {
	return s.clients.close()
}

// Tables returns the tables of the configuration with the ages at which Bigtable deletes the
// cells of each family, as they were at Open. They may differ from the wanted ones: Open
// changes none.
func (s *Store) Tables() []bucketstore.TableSpec { return s.found }

// table returns an open table, or an error that is bucketstore.ErrTable.
func (s *Store) table(name bucketstore.Table) (*table, error) {
	if name >= bucketstore.NumTables || s.tables[name] == nil {
		return nil, fmt.Errorf("table %s: %w", name, bucketstore.ErrTable)
	}
	return s.tables[name], nil
}

// checkFamily returns an error that is bucketstore.ErrTable unless the table
// has the family.
func (t *table) checkFamily(name string) error {
	if _, ok := t.families[name]; !ok {
		return fmt.Errorf("family %q of table %s: %w", name, t.name, bucketstore.ErrTable)
	}
	return nil
}

// callError makes an error of a call match the error of the context that ended it.
func callError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w (%w)", ended, err)
	}
	if c := callOf(ctx); c != nil && c.retryAfter.Load() > 0 {
		return &bucketstore.OverloadError{RetryAfter: time.Duration(c.retryAfter.Load()), Err: err}
	}
	// The deadline may pass at the server first.
	if status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
	}
	return refusal(err)
}

// refusal makes the error of a request, or of one of its rows, that Bigtable can never take
// match bucketstore.ErrRefused.
func refusal(err error) error {
	if status.Code(err) == codes.InvalidArgument {
		return fmt.Errorf("%w: %w", bucketstore.ErrRefused, err)
	}
	return err
}

// parallelScans is enough to hide the time that a request is on the network.
const parallelScans = 4

// Traits implements bucketstore.Store.
func (s *Store) Traits() bucketstore.Traits {
	return bucketstore.Traits{Shared: true, KeepsVersions: true, OwnAges: true, ParallelScans: parallelScans}
}
