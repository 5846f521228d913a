package bigtable_test

import (
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// BenchmarkApply counts the server, too, which does nothing but answer.
func BenchmarkApply(b *testing.B) {
	for _, size := range []struct{ rows, cells int }{{2000, 1}, {100, 1}, {2000, 10}} {
		b.Run(fmt.Sprintf("rows=%d/cells=%d", size.rows, size.cells), func(b *testing.B) {
			s := bigtabletest.Open(b, bigtabletest.WithServerOptions(grpc.ChainStreamInterceptor(acknowledge)))
			muts := samples(size.rows, size.cells)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Apply(b.Context(), bucketstore.Metric, muts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size.rows*size.cells)/b.Elapsed().Seconds(), "cells/s")
		})
	}
}

// BenchmarkScan counts the fake as well.
func BenchmarkScan(b *testing.B) {
	for _, size := range []struct{ rows, cells int }{{2000, 1}, {100, 240}} {
		b.Run(fmt.Sprintf("rows=%d/cells=%d", size.rows, size.cells), func(b *testing.B) {
			s := bigtabletest.Open(b)
			muts := samples(size.rows, size.cells)
			if err := s.Apply(b.Context(), bucketstore.Metric, muts); err != nil {
				b.Fatal(err)
			}
			req := wholeTable(bucketstore.Metric)
			req.Rows = nil
			for _, m := range muts {
				req.Rows = append(req.Rows, series.SingleRow(m.Key))
			}
			b.ReportAllocs()
			for b.Loop() {
				cells := 0
				err := s.Scan(b.Context(), req, func(r bucketstore.Row) error {
					cells += len(r.Cells)
					return nil
				})
				if err != nil || cells != size.rows*size.cells {
					b.Fatalf("%d cells, %v", cells, err)
				}
			}
			b.ReportMetric(float64(b.N*size.rows*size.cells)/b.Elapsed().Seconds(), "cells/s")
		})
	}
}

// samples returns mutations of rows with keys of about 200 bytes, in order.
func samples(rows, cells int) []bucketstore.Mutation {
	muts := make([]bucketstore.Mutation, rows)
	for i := range muts {
		muts[i].Key = fmt.Appendf(nil, "http_request_duration_seconds_bucket,code=200,container=adapter,handler=/api/v1/write,"+
			"instance=10.12.%03d.%03d:9201,job=monitoring/adapter,le=0.25,namespace=monitoring,node=gke-pool-1-7f3c,pod=adapter-%06d,1297080123392", i/256, i%256, i)
		for j := range cells {
			muts[i].Ops = append(muts[i].Ops, setCell("r0", series.AppendQualifier(nil, uint32(j)*15000), int64(j)*15000, cell.AppendFloat(nil, float64(j))))
		}
	}
	return muts
}

// acknowledge answers requests of row mutations instead of the fake.
func acknowledge(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if info.FullMethod != bigtablepb.Bigtable_MutateRows_FullMethodName {
		return handler(srv, stream)
	}
	var req bigtablepb.MutateRowsRequest
	if err := stream.RecvMsg(&req); err != nil {
		return err
	}
	res := &bigtablepb.MutateRowsResponse{Entries: make([]*bigtablepb.MutateRowsResponse_Entry, len(req.Entries))}
	for i := range res.Entries {
		res.Entries[i] = &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: status.New(codes.OK, "").Proto()}
	}
	return stream.SendMsg(res)
}

// A sink is a fake that discards row mutations and answers that up to so many rows are
// stored: it does not cost per row.
type sink struct {
	encoding.CodecV2
	answer []byte
}

// sinkOption puts a sink for requests of up to so many rows before the fake.
func sinkOption(tb testing.TB, rows int) bigtabletest.Option {
	tb.Helper()
	var res bigtablepb.MutateRowsResponse
	for i := range rows {
		res.Entries = append(res.Entries, &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: new(rpcstatus.Status)})
	}
	answer, err := proto.Marshal(&res)
	if err != nil {
		tb.Fatal(err)
	}
	s := &sink{encoding.GetCodecV2("proto"), answer}
	return bigtabletest.WithServerOptions(grpc.ForceServerCodecV2(s), grpc.ChainStreamInterceptor(
		func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			if info.FullMethod != bigtablepb.Bigtable_MutateRows_FullMethodName {
				return handler(srv, stream)
			}
			if err := stream.RecvMsg(s); err != nil {
				return err
			}
			return stream.SendMsg(s)
		}))
}

// Marshal implements encoding.CodecV2.
func (s *sink) Marshal(v any) (mem.BufferSlice, error) {
	if v == s {
		return mem.BufferSlice{mem.SliceBuffer(s.answer)}, nil
	}
	return s.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (s *sink) Unmarshal(data mem.BufferSlice, v any) error {
	if v == s {
		return nil
	}
	return s.CodecV2.Unmarshal(data, v)
}

const benchmarkTime = 300 * series.Period

// appended returns n samples of each of so many series, all series taking turns.
func appended(a bucketstore.Appender, rows, n int) []bucketstore.Sample {
	out := make([]bucketstore.Sample, rows*n)
	for i, m := range samples(rows, 0) {
		ref := a.Ref(m.Key[:len(m.Key)-len(",1297080123392")])
		for j := range n {
			out[j*rows+i] = bucketstore.Sample{Ref: ref, T: benchmarkTime + int64(j)*15000, V: float64(i)}
		}
	}
	return out
}

// BenchmarkAppend writes in direct mode. It counts the transport on both sides, but
// nothing that the server would do.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []struct{ series, samples int }{{2000, 1}, {100, 1}, {2000, 10}} {
		b.Run(fmt.Sprintf("series=%d/samples=%d", size.series, size.samples), func(b *testing.B) {
			s := bigtabletest.Open(b, sinkOption(b, size.series))
			a := bucketstore.NewDirect(s, series.Schema{}, func() time.Time { return time.UnixMilli(benchmarkTime) }, nil)
			samples := appended(a, size.series, size.samples)
			b.ReportAllocs()
			for b.Loop() {
				if err := a.Append(b.Context(), samples); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(samples)), "ns/sample")
		})
	}
}
