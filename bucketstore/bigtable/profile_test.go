package bigtable_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"github.com/go-kit/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// TestAppProfile: an app profile with which the adapter cannot work is refused, as far as it
// may be read.
func TestAppProfile(t *testing.T) {
	single := func(transactions bool) *adminpb.AppProfile {
		return &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_SingleClusterRouting_{
			SingleClusterRouting: &adminpb.AppProfile_SingleClusterRouting{ClusterId: "c1", AllowTransactionalWrites: transactions},
		}}
	}
	for _, tt := range []struct {
		name    string
		profile *adminpb.AppProfile
		err     error // of the request
		refused string
		warned  bool
	}{
		{name: "one cluster, transactions", profile: single(true)},
		{name: "one cluster, no transactions", profile: single(false), refused: "does not allow single-row transactions"},
		{name: "several clusters", profile: &adminpb.AppProfile{RoutingPolicy: &adminpb.AppProfile_MultiClusterRoutingUseAny_{}}, refused: "routes to several clusters"},
		{name: "Data Boost", profile: &adminpb.AppProfile{Isolation: &adminpb.AppProfile_DataBoostIsolationReadOnly_{
			DataBoostIsolationReadOnly: &adminpb.AppProfile_DataBoostIsolationReadOnly{},
		}}, refused: "only reads"},
		{name: "not there", err: status.Error(codes.NotFound, "no"), refused: "app profile mine does not exist"},
		{name: "no right to read it", err: status.Error(codes.PermissionDenied, "no"), warned: true},
		{name: "no such request, as in the emulator", err: status.Error(codes.Unimplemented, "no"), warned: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked string
			addr := bigtabletest.Serve(t, bigtabletest.WithServerOptions(grpc.ChainUnaryInterceptor(
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if r, ok := req.(*adminpb.GetAppProfileRequest); ok {
						asked = r.Name
						return tt.profile, tt.err
					}
					return handler(ctx, req)
				})))
			var logged bytes.Buffer
			cfg := bigtabletest.ServiceConfig(addr)
			cfg.Connections, cfg.AppProfile, cfg.Logger = 1, "mine", log.NewLogfmtLogger(&logged)
			s, err := bigtable.Open(t.Context(), cfg)
			if err == nil {
				defer s.Close()
			}
			if (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("Open: %v, want %q", err, tt.refused)
			}
			if warned := strings.Contains(logged.String(), "profile was not checked"); warned != tt.warned {
				t.Errorf("logged %s", &logged)
			}
			if asked != "projects/project/instances/instance/appProfiles/mine" {
				t.Errorf("asked for %q", asked)
			}
		})
	}
}

// TestConditionalWritesRefused: where the profile could not be read, the first conditional
// write says what is wrong.
func TestConditionalWritesRefused(t *testing.T) {
	s := bigtabletest.Open(t, bigtabletest.WithFaults(func(proto.Message) bigtabletest.Fault {
		return bigtabletest.Fault{Err: status.Error(codes.FailedPrecondition, "Single-row transactions are not allowed by this app profile")}
	}))
	_, err := s.CheckAndApply(t.Context(), bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, metaRows(1, 8)[0])
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "app-profiles create NAME --instance=instance --route-to=CLUSTER --transactional-writes") {
		t.Errorf("CheckAndApply: %v, want what to do", err)
	}
}
