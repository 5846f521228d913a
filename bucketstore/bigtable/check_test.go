package bigtable_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
)

// TestCheckAndApplyIsNotRepeated: after an error the caller must find out what happened.
func TestCheckAndApplyIsNotRepeated(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Internal, codes.ResourceExhausted} {
		t.Run(code.String(), func(t *testing.T) {
			refuse := spy{onRequest: func(context.Context, proto.Message) error { return status.Error(code, "no") }}
			s := bigtabletest.Open(t, refuse.option())
			_, err := s.CheckAndApply(t.Context(), bucketstore.Meta, bucketstore.Condition{Family: "m", Absent: true}, metaRows(1, 8)[0])
			if status.Code(err) != code {
				t.Errorf("CheckAndApply: %v, want %v", err, code)
			}
			if n := len(refuse.seen()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

func TestCheckAndApplyOfNothing(t *testing.T) {
	s := bigtabletest.Open(t)
	apply(t, s, bucketstore.Meta, metaRows(1, 8)...)
	for _, tc := range []struct {
		name, key string
		absent    bool
		want      bool
	}{
		{"there, wanted", "row 000000", false, true},
		{"there, not wanted", "row 000000", true, false},
		{"not there, wanted", "other", false, false},
		{"not there, not wanted", "other", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cond := bucketstore.Condition{Family: "m", Qualifier: []byte("q"), Value: make([]byte, 8), Absent: tc.absent}
			applied, err := s.CheckAndApply(t.Context(), bucketstore.Meta, cond, bucketstore.Mutation{Key: []byte(tc.key)})
			if err != nil || applied != tc.want {
				t.Fatalf("CheckAndApply = %v, %v, want %v", applied, err, tc.want)
			}
		})
	}
}

func TestConditionTooLarge(t *testing.T) {
	s := bigtabletest.Open(t)
	cond := bucketstore.Condition{Family: "m", Qualifier: []byte("q"), Value: make([]byte, 11<<10)}
	if _, err := s.CheckAndApply(t.Context(), bucketstore.Meta, cond, metaRows(1, 8)[0]); err == nil || !strings.Contains(err.Error(), "condition of") {
		t.Fatalf("CheckAndApply: %v, want the size of the condition", err)
	}
}
