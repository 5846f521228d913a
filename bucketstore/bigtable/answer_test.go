package bigtable_test

import (
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore/bigtable"
)

// FuzzParseAnswer: what generated code reads is read alike, and what it refuses
// never confirms more than it would have by itself.
func FuzzParseAnswer(f *testing.F) {
	add := func(entries ...*bigtablepb.MutateRowsResponse_Entry) []byte {
		msg, err := proto.Marshal(&bigtablepb.MutateRowsResponse{Entries: entries, RateLimitInfo: &bigtablepb.RateLimitInfo{Factor: 1.5}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(msg)
		return msg
	}
	ok := &bigtablepb.MutateRowsResponse_Entry{Index: 1, Status: &rpcstatus.Status{}}
	bad := &bigtablepb.MutateRowsResponse_Entry{Index: 2, Status: &rpcstatus.Status{Code: 13, Message: "broken"}}
	add()
	add(ok, bad)
	add(bad, ok, &bigtablepb.MutateRowsResponse_Entry{Index: 2, Status: &rpcstatus.Status{}}, &bigtablepb.MutateRowsResponse_Entry{Index: 0})
	add(&bigtablepb.MutateRowsResponse_Entry{Index: -1, Status: &rpcstatus.Status{Code: -5}}, &bigtablepb.MutateRowsResponse_Entry{Index: 9})
	msg := add(ok, bad)
	f.Add(msg[:len(msg)-1])
	f.Add([]byte("\x0a\x04\x08\x01\x10\x00"))                 // a status that is a number
	f.Add([]byte("\x0a\x08\x12\x02\x08\x0d\x12\x02\x12\x00")) // a status in two parts
	f.Fuzz(func(t *testing.T, msg []byte) {
		const rows = 4
		confirmed, failed, err := bigtable.ParseAnswer(rows, msg)
		var want bigtablepb.MutateRowsResponse
		if proto.Unmarshal(msg, &want) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%x: %v, but generated code reads it", msg, err)
		}
		last := make(map[int64]*bigtablepb.MutateRowsResponse_Entry)
		for _, entry := range want.Entries {
			last[entry.Index] = entry
		}
		for i := range rows {
			entry := last[int64(i)]
			stored := entry != nil && entry.Status != nil && entry.Status.Code == 0
			if confirmed[i] != stored || (failed[i] == nil) != (entry == nil || stored) {
				t.Errorf("row %d: stored %v, error %v of %v", i, confirmed[i], failed[i], entry)
			}
			if entry != nil && entry.Status != nil && !stored {
				if got := status.Convert(failed[i]); got.Code() != codes.Code(entry.Status.Code) || got.Message() != entry.Status.Message {
					t.Errorf("row %d: %v of %v", i, failed[i], entry)
				}
			}
		}
	})
}
