package bigtable_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

func TestTraits(t *testing.T) {
	storetest.RunTraits(t, func(t *testing.T) (bucketstore.Store, func() (bucketstore.Store, error)) {
		address := bigtabletest.Serve(t)
		return open(t, bigtabletest.Config(address)), func() (bucketstore.Store, error) { return open(t, bigtabletest.Config(address)), nil }
	})
}

func TestEmulatorVariable(t *testing.T) {
	t.Setenv("BIGTABLE_EMULATOR_HOST", bigtabletest.Serve(t))
	cfg := bigtabletest.Config("")
	s := open(t, cfg)

	// The client itself would refuse this row: it has more than 4 MB.
	const columns = 6
	value := []byte(strings.Repeat("x", 1<<20))
	mut := bucketstore.Mutation{Key: []byte("row")}
	for i := range columns {
		mut.Ops = append(mut.Ops, setCell("r0", series.AppendQualifier(nil, uint32(i)), 1, value))
	}
	apply(t, s, bucketstore.Metric, mut)
	rows := scan(t, s, wholeTable(bucketstore.Metric))
	if len(rows) != 1 || len(rows[0].Cells) != columns || len(rows[0].Cells[columns-1].Value) != len(value) {
		t.Fatalf("Scan found %d rows, want 1 of %d cells", len(rows), columns)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*bigtable.Config)
		want   string
	}{
		{"no project", func(c *bigtable.Config) { c.Project = "" }, "no project"},
		{"no instance", func(c *bigtable.Config) { c.Instance = "" }, "no instance"},
		{"negative connections", func(c *bigtable.Config) { c.Connections = -1 }, "-1 connections"},
		{"prefix begins with a dash", func(c *bigtable.Config) { c.TablePrefix = "-a" }, `table prefix "-a"`},
		{"prefix with a slash", func(c *bigtable.Config) { c.TablePrefix = "a/b" }, `table prefix "a/b"`},
		{"prefix too long", func(c *bigtable.Config) { c.TablePrefix = strings.Repeat("a", 41) }, "at most 40"},
		{"unknown table", func(c *bigtable.Config) { c.Tables = []bucketstore.TableSpec{{Table: 77}} }, "no such table"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := bigtabletest.Config("127.0.0.1:1")
			tc.change(&cfg)
			if _, err := bigtable.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Open: %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// TestOpenDeadServer: a server that takes connections and says nothing.
func TestOpenDeadServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })

	t.Run("own timeout", func(t *testing.T) {
		cfg := bigtabletest.Config(listener.Addr().String())
		cfg.ReachTimeout = 50 * time.Millisecond
		if _, err := bigtable.Open(t.Context(), cfg); !errors.Is(err, bucketstore.ErrUnreachable) || !strings.Contains(err.Error(), cfg.EmulatorHost) {
			t.Fatalf("Open: %v, want the address", err)
		}
	})
	t.Run("own timeout, as Google's service", func(t *testing.T) {
		cfg := bigtabletest.ServiceConfig(listener.Addr().String())
		cfg.ReachTimeout = 50 * time.Millisecond
		if _, err := bigtable.Open(t.Context(), cfg); !errors.Is(err, bucketstore.ErrUnreachable) || !strings.Contains(err.Error(), "bigtable.googleapis.com:443") {
			t.Fatalf("Open: %v, want the address", err)
		}
	})
	t.Run("deadline of the caller", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := bigtable.Open(ctx, bigtabletest.Config(listener.Addr().String())); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Open: %v, want a deadline", err)
		}
	})
}

// open opens a store that is closed at the end of the test.
func open(t *testing.T, cfg bigtable.Config) *bigtable.Store {
	t.Helper()
	s, err := bigtable.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// dial returns a connection to the fake at addr.
func dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	const limit = 256 << 20
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.MaxCallSendMsgSize(limit)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func setCell(family string, qualifier []byte, t int64, value []byte) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.SetCell, Family: family, Qualifier: qualifier, Time: t, Value: value}
}

func apply(t *testing.T, s *bigtable.Store, table bucketstore.Table, muts ...bucketstore.Mutation) {
	t.Helper()
	if err := s.Apply(t.Context(), table, muts); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

// wholeTable asks for all cells of a table.
func wholeTable(table bucketstore.Table) bucketstore.ScanRequest {
	req := bucketstore.ScanRequest{Table: table, Rows: []series.RowRange{{}}}
	for _, f := range bucketstore.Tables(bucketstore.Retention{})[table].Families {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: f.Name})
	}
	return req
}

// scan returns rows whose cells belong to the caller. Keys and qualifiers are
// copied, values need not be.
func scan(t *testing.T, s *bigtable.Store, req bucketstore.ScanRequest) []bucketstore.Row {
	t.Helper()
	var rows []bucketstore.Row
	err := s.Scan(t.Context(), req, func(r bucketstore.Row) error {
		row := bucketstore.Row{Key: append([]byte(nil), r.Key...)}
		for _, c := range r.Cells {
			c.Qualifier = append([]byte(nil), c.Qualifier...)
			row.Cells = append(row.Cells, c)
		}
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		t.Fatalf("Scan: %v", err)
	}
	return rows
}

// keys returns the keys of rows.
func keys(rows []bucketstore.Row) []string {
	var keys []string
	for _, r := range rows {
		keys = append(keys, string(r.Key))
	}
	return keys
}
