package main

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"google.golang.org/grpc"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/series"
)

// TestSealFlags: the default of sealing depends on backend and buffer.
func TestSealFlags(t *testing.T) {
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
	on := func(args ...string) []string { return append(bigtable[:3:3], args...) }
	for _, tt := range []struct {
		name    string
		args    []string
		command string
		enabled bool
		refused string
	}{
		{"embedded", nil, commandServe, false, ""},
		{"embedded, without a buffer", []string{"--no-buffer.enabled"}, commandServe, false, ""},
		{"embedded, sealing", []string{"--seal.enabled"}, "", false, "--storage.backend=bigtable"},
		{"Bigtable", bigtable, commandServe, true, ""},
		{"Bigtable, told to serve", on("serve"), commandServe, true, ""},
		{"Bigtable, not sealing", on("--no-seal.enabled"), commandServe, false, ""},
		{"Bigtable with a buffer", on("--buffer.enabled"), commandServe, false, ""},
		{"Bigtable with a buffer, sealing", on("--buffer.enabled", "--seal.enabled"), "", false, "--buffer.enabled"},
		{"compact with a buffer", on("compact", "--buffer.enabled"), "", false, "--buffer.enabled"},
		{"no rows", on("--seal.rows-per-second=0"), "", false, "--seal.rows-per-second"},
		{"no rows for rollups", []string{"--rollup.rows-per-second=0"}, "", false, "--rollup.rows-per-second"},
		{"no workers", on("--seal.workers=0"), "", false, "--seal.workers"},
		{"app profile of an embedded store", []string{"--bigtable.seal-app-profile=low"}, "", false, "--storage.backend=bigtable"},
		{"compact", on("compact"), commandCompact, true, ""},
		{"compact, the flags behind", append([]string{"compact", "--interval=1m"}, bigtable...), commandCompact, true, ""},
		{"compact an embedded store", []string{"compact"}, commandCompact, false, ""},
		{"compact an embedded store at an interval", []string{"compact", "--interval=1m"}, "", false, "--storage.backend=bigtable"},
		{"compact an embedded store without rollups", []string{"compact", "--retention.resolution-5m=off", "--retention.resolution-1h=off"}, "", false, "--retention.resolution-5m"},
		{"compact backwards", on("compact", "--interval=-1m"), "", false, "--interval"},
		{"interval of nothing", on("--interval=1m"), "", false, "interval"},
		{"unknown command", []string{"compress"}, "", false, "compress"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseFlags(tt.args)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("error %v does not name %s", err, tt.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if o.command != tt.command || o.seal.enabled != tt.enabled {
				t.Errorf("command %s, sealing %v", o.command, o.seal.enabled)
			}
			if got, want := o.api.Flags["seal.enabled"], strconv.FormatBool(tt.enabled); got != want {
				t.Errorf("the API says %s, want %s", got, want)
			}
			if strings.Contains(tt.name, "behind") && o.seal.interval != time.Minute {
				t.Errorf("interval %s", o.seal.interval)
			}
		})
	}
}

// TestSealAppProfile: requests of a sealer have the app profile for sealing if there is one,
// and others that of the store.
func TestSealAppProfile(t *testing.T) {
	var last atomic.Value
	addr := bigtabletest.Serve(t, bigtabletest.WithServerOptions(grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return handler(srv, profiledStream{stream, &last})
		})))
	t.Setenv("BIGTABLE_EMULATOR_HOST", addr)
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"none", "main", nil},
		{"one", "low", []string{"--bigtable.seal-app-profile=low"}},
		{"one, not sealing", "main", []string{"--no-seal.enabled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseFlags(append(tt.args, "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--bigtable.app-profile=main"))
			if err != nil {
				t.Fatal(err)
			}
			a, err := newAdapter(o, log.NewNopLogger())
			if err != nil {
				t.Fatal(err)
			}
			rows, err := openStore(t.Context(), o, a.logger, a.reg, nil)
			if err != nil {
				t.Fatal(err)
			}
			a.onClose("close the store", rows.Close)
			sealing, err := a.openForSealing(t.Context(), rows)
			if err != nil {
				t.Fatal(err)
			}
			for _, store := range []struct {
				bucketstore.Store
				want string
			}{{sealing, tt.want}, {rows, "main"}} {
				err := store.Apply(t.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: []byte("up"), Ops: []bucketstore.Op{
					{Kind: bucketstore.DeleteFamily, Family: series.FamilyLate},
				}}})
				if got := last.Load(); err != nil || got != store.want {
					t.Errorf("the app profile is %v, want %s, %v", got, store.want, err)
				}
			}
			remotetest.WantCounter(t, a.reg, 2, "adapter_bigtable_mutations_total", "table", "METRIC", "result", "success")
			if err := a.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A profiledStream keeps the app profile of a request.
type profiledStream struct {
	grpc.ServerStream
	last *atomic.Value
}

func (s profiledStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if req, ok := m.(interface{ GetAppProfileId() string }); ok && err == nil {
		s.last.Store(req.GetAppProfileId())
	}
	return err
}
