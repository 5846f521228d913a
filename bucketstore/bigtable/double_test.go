package bigtable_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	btclient "cloud.google.com/go/bigtable"
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// TestDoubleRefuses: the test double refuses what production refuses, so that a store that
// relies on the emulator's leniency fails its tests. The requests come from Google's client
// alone, because the store sends none of these.
func TestDoubleRefuses(t *testing.T) {
	small := bigtabletest.WithLimits(func(l *bigtabletest.Limits) {
		*l = bigtabletest.Limits{Mutations: 10, Request: 4000, Key: 40, Qualifier: 20, Cell: 1000, Row: 1500, RowSet: 200, Filter: 100}
	})
	addr := bigtabletest.Serve(t, small)
	cfg := bigtabletest.Config(addr)
	open(t, cfg)
	client, err := btclient.NewClientWithConfig(t.Context(), cfg.Project, cfg.Instance, btclient.ClientConfig{MetricsProvider: btclient.NoopMetricsProvider{}}, option.WithGRPCConn(dial(t, addr)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	table := client.Open("META")
	set := func(n, qualifier, value int) *btclient.Mutation {
		m := btclient.NewMutation()
		for i := range n {
			m.Set("m", strings.Repeat("q", qualifier)+string(rune('a'+i)), 0, make([]byte, value))
		}
		return m
	}
	write := func(key string, m *btclient.Mutation) func() error {
		return func() error { return table.Apply(t.Context(), key, m) }
	}
	bulk := func(rows int, m *btclient.Mutation) func() error {
		return func() error {
			keys := slices.Repeat([]string{"row"}, rows)
			_, err := table.ApplyBulk(t.Context(), keys, slices.Repeat([]*btclient.Mutation{m}, rows))
			return err
		}
	}
	read := func(set btclient.RowSet, opts ...btclient.ReadOption) func() error {
		return func() error {
			return table.ReadRows(t.Context(), set, func(btclient.Row) bool { return true }, opts...)
		}
	}
	long := strings.Repeat("k", 41)
	for _, tc := range []struct {
		name string
		call func() error
		want string // "" is taken
	}{
		{"a row", write("row", set(1, 1, 1)), ""},
		{"key", write(long, set(1, 1, 1)), "row key: 41"},
		{"key of a condition", write(long, btclient.NewCondMutation(btclient.PassAllFilter(), set(1, 1, 1), nil)), "row key: 41"},
		{"qualifier", write("row", set(1, 20, 1)), "qualifier: 21"},
		{"cell", write("row", set(1, 1, 1001)), "cell: 1001"},
		{"row", write("row", set(2, 1, 800)), "row: 16"},
		{"mutations of a row", write("row", set(11, 1, 1)), "number of mutations: 11"},
		{"no mutation", write("row", btclient.NewMutation()), "no mutations"},
		{"mutations of a request", bulk(6, set(2, 1, 1)), "number of mutations: 12"},
		{"request", bulk(9, set(1, 1, 900)), "request: "},
		{"bulk", bulk(5, set(2, 1, 1)), ""},
		{"row set", read(btclient.RowList(slices.Repeat([]string{long}, 5))), "row set: "},
		{"filter", read(btclient.RowList{"row"}, btclient.RowFilter(btclient.RowKeyFilter(strings.Repeat("x", 100)))), "filter: "},
		{"read", read(btclient.RowList{"row"}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.call()
			if tc.want == "" && err != nil || tc.want != "" && (status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	t.Run("a row that grew too large", func(t *testing.T) {
		for _, q := range []string{"a", "b"} {
			m := btclient.NewMutation()
			m.Set("m", q, 0, make([]byte, 900))
			if err := table.Apply(t.Context(), "grown", m); err != nil {
				t.Fatal(err)
			}
		}
		if err := read(btclient.RowList{"grown"})(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("read: %v, want %s", err, codes.FailedPrecondition)
		}
	})
}

// TestApplyHalfStored: the stream breaks after some rows were written. The client sends all
// of them again, and nothing is lost or doubled.
func TestApplyHalfStored(t *testing.T) {
	var requests atomic.Int32
	broken := status.Error(codes.Unavailable, "broken")
	s := bigtabletest.Open(t, bigtabletest.WithFaults(func(req proto.Message) bigtabletest.Fault {
		if _, ok := req.(*bigtablepb.MutateRowsRequest); ok && requests.Add(1) == 1 {
			return bigtabletest.Fault{Half: 7, Err: broken}
		}
		return bigtabletest.Fault{}
	}))
	apply(t, s, bucketstore.Meta, metaRows(20, 8)...)
	if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 20 || requests.Load() != 2 {
		t.Errorf("%d rows after %d requests, want 20 after 2", len(rows), requests.Load())
	}

	// An error that the client does not repeat leaves the rows unconfirmed, and some stored.
	final := bigtabletest.Open(t, bigtabletest.WithFaults(func(req proto.Message) bigtabletest.Fault {
		return bigtabletest.Fault{Half: 7, Err: status.Error(codes.Internal, "broken")}
	}))
	if err := final.Apply(t.Context(), bucketstore.Meta, metaRows(20, 8)); status.Code(err) != codes.Internal {
		t.Errorf("Apply: %v, want %s", err, codes.Internal)
	}
}

// TestLatency: an answer that takes its time is waited for.
func TestLatency(t *testing.T) {
	s := bigtabletest.Open(t, bigtabletest.WithFaults(func(proto.Message) bigtabletest.Fault {
		return bigtabletest.Fault{Latency: 20 * time.Millisecond}
	}))
	apply(t, s, bucketstore.Meta, metaRows(2, 8)...)
	if rows := scan(t, s, wholeTable(bucketstore.Meta)); len(rows) != 2 {
		t.Errorf("%d rows, want 2", len(rows))
	}
}
