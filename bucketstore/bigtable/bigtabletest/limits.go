package bigtabletest

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Limits are what Bigtable refuses to exceed and the fake does not know: see
// https://cloud.google.com/bigtable/quotas. All but Mutations are in bytes.
type Limits struct {
	// Mutations are those of all rows of one request.
	Mutations int
	// Request is the size of a request.
	Request int
	// Key, Qualifier and Cell are the sizes of a row key, a qualifier and a value.
	Key, Qualifier, Cell int
	// Row is the size of a row: of what a request writes to one, and of what a read
	// returns of one.
	Row int
	// RowSet and Filter are the sizes of these parts of a read.
	RowSet, Filter int
}

// ProductionLimits returns the limits of Google's service.
func ProductionLimits() Limits {
	return Limits{
		Mutations: 100_000,
		Request:   maxMessageSize,
		Key:       4 << 10,
		Qualifier: 16 << 10,
		Cell:      100 << 20,
		Row:       256 << 20,
		RowSet:    512 << 10,
		Filter:    20_480,
	}
}

// check returns the error with which Bigtable refuses a request.
func (l Limits) check(req proto.Message) error {
	if size := proto.Size(req); size > l.Request {
		return tooLarge("request", size, l.Request)
	}
	switch r := req.(type) {
	case *bigtablepb.MutateRowsRequest:
		return l.checkEntries(r.Entries)
	case *bigtablepb.MutateRowRequest:
		return l.checkRow(r.RowKey, r.Mutations)
	case *bigtablepb.CheckAndMutateRowRequest:
		if size := proto.Size(r.PredicateFilter); size > l.Filter {
			return tooLarge("filter", size, l.Filter)
		}
		return l.checkRow(r.RowKey, append(r.TrueMutations[:len(r.TrueMutations):len(r.TrueMutations)], r.FalseMutations...))
	case *bigtablepb.ReadRowsRequest:
		if size := proto.Size(r.Rows); size > l.RowSet {
			return tooLarge("row set", size, l.RowSet)
		}
		if size := proto.Size(r.Filter); size > l.Filter {
			return tooLarge("filter", size, l.Filter)
		}
	}
	return nil
}

// checkEntries refuses all rows of a request for one of them, as Bigtable does.
func (l Limits) checkEntries(entries []*bigtablepb.MutateRowsRequest_Entry) error {
	mutations := 0
	for _, entry := range entries {
		if err := l.checkRow(entry.RowKey, entry.Mutations); err != nil {
			return err
		}
		mutations += len(entry.Mutations)
	}
	if mutations > l.Mutations {
		return tooLarge("number of mutations", mutations, l.Mutations)
	}
	return nil
}

func (l Limits) checkRow(key []byte, mutations []*bigtablepb.Mutation) error {
	switch {
	case len(key) == 0:
		return status.Error(codes.InvalidArgument, "row key is empty")
	case len(key) > l.Key:
		return tooLarge("row key", len(key), l.Key)
	case len(mutations) == 0:
		return status.Error(codes.InvalidArgument, "no mutations")
	case len(mutations) > l.Mutations:
		return tooLarge("number of mutations", len(mutations), l.Mutations)
	}
	row := len(key)
	for _, m := range mutations {
		set := m.GetSetCell()
		if size := len(set.GetColumnQualifier()); size > l.Qualifier {
			return tooLarge("qualifier", size, l.Qualifier)
		}
		if size := len(set.GetValue()); size > l.Cell {
			return tooLarge("cell", size, l.Cell)
		}
		row += len(set.GetColumnQualifier()) + len(set.GetValue())
	}
	if row > l.Row {
		return tooLarge("row", row, l.Row)
	}
	return nil
}

func tooLarge(what string, size, limit int) error {
	return status.Errorf(codes.InvalidArgument, "%s: %d, the limit is %d", what, size, limit)
}

// A rowMeter measures the rows of an answer.
type rowMeter struct{ size int }

// add returns an error at a row that Bigtable could not return.
func (m *rowMeter) add(res *bigtablepb.ReadRowsResponse, limit int) error {
	for _, c := range res.Chunks {
		m.size += len(c.RowKey) + len(c.GetQualifier().GetValue()) + len(c.Value)
		if m.size > limit {
			return status.Errorf(codes.FailedPrecondition, "row: %d bytes, the limit is %d", m.size, limit)
		}
		if c.GetCommitRow() {
			m.size = 0
		}
	}
	return nil
}
