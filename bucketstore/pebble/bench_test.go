package pebble_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// benchKey returns row keys as Prometheus makes them, in ascending order.
func benchKey(i int) []byte {
	return fmt.Appendf(nil, "node_network_receive_bytes_total,device=eth0,environment=production,instance=host-%05d.example.com:9100,job=node,region=eu-west-1,1692217114624", i)
}

// benchRow sets cells of one row, 15 s apart, from the one after done on.
func benchRow(i, done, cells int) bucketstore.Mutation {
	mut := bucketstore.Mutation{Key: benchKey(i), Ops: make([]bucketstore.Op, cells)}
	for c := range mut.Ops {
		t := int64(done+c) * 15000
		mut.Ops[c] = bucketstore.Op{
			Family: "r1", Qualifier: series.AppendQualifier(nil, uint32(t)), Time: t, Value: cell.AppendFloat(nil, float64(i+c)),
		}
	}
	return mut
}

func BenchmarkApply(b *testing.B) {
	const rows = 2000
	for _, tc := range []struct {
		name string
		cfg  pebble.Config
	}{
		{"disk", onDisk(b.TempDir())},
		{"memory", onDisk("/data").WithFS(vfs.NewMem())},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := openStore(b, tc.cfg)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				b.StopTimer()
				muts := make([]bucketstore.Mutation, rows)
				for i := range muts {
					muts[i] = benchRow(i, n, 1)
				}
				n++
				b.StartTimer()
				if err := s.Apply(b.Context(), bucketstore.Metric, muts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(rows*b.N), "ns/cell")
		})
	}
}

// BenchmarkIngest writes the index rows of new series, which become a table of their own:
// 11 of each of 2,000 series. It counts CPU time, compactions included.
func BenchmarkIngest(b *testing.B) {
	const count, lists = 2000, 11
	s := openStore(b, onDisk("/data").WithFS(vfs.NewMem()))
	b.ReportAllocs()
	batch := func(n int) (muts []bucketstore.Mutation) {
		for list := range lists {
			for i := range count {
				key := fmt.Sprintf("p,label_%02d=value,1299764477952,metric_name_total,cluster=prod-1,environment=production,id=%08d,%s", list, n*count+i, strings.Repeat("name=value,", 10))
				muts = append(muts, bucketstore.Mutation{Key: []byte(key), Ops: []bucketstore.Op{{Family: series.FamilyIndex, Qualifier: []byte(series.QualifierIndex), Time: 1300301348864}}})
			}
		}
		return muts
	}
	var spent time.Duration
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		muts := batch(n)
		b.StartTimer()
		began := cpuTime(b)
		if err := s.Apply(b.Context(), bucketstore.Index, muts); err != nil {
			b.Fatal(err)
		}
		spent += cpuTime(b) - began
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(count*lists*b.N), "cpu-ns/row")
}

// cpuTime is the user and system time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkScan(b *testing.B) {
	for _, tc := range []struct {
		name        string
		rows, cells int
		single      bool // one range for each row
		from, to    int  // cells to read, if not all
	}{
		{"20 cells", 2000, 20, false, 0, 0},
		{"20 cells, single rows", 2000, 20, true, 0, 0},
		{"5760 cells", 20, 5760, false, 0, 0},
		{"5760 cells, 240 of them", 20, 5760, false, 4000, 4240},
		{"1 cell", 20000, 1, false, 0, 0},
		{"1 cell, single rows", 20000, 1, true, 0, 0},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := openStore(b, onDisk(b.TempDir()))
			fillInRounds(b, s, tc.rows, tc.cells)
			req, want := allOf(bucketstore.Metric), tc.rows*tc.cells
			if tc.to > 0 {
				want = tc.rows * (tc.to - tc.from)
				for i := range req.Families {
					req.Families[i].Start = series.AppendQualifier(nil, uint32(tc.from)*15000)
					req.Families[i].Limit = series.AppendQualifier(nil, uint32(tc.to)*15000)
				}
			}
			if tc.single {
				req.Rows = nil
				for i := range tc.rows {
					req.Rows = append(req.Rows, series.SingleRow(benchKey(i)))
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				cells := 0
				err := s.Scan(b.Context(), req, func(row bucketstore.Row) error {
					cells += len(row.Cells)
					return nil
				})
				if err != nil || cells != want {
					b.Fatalf("%d cells, want %d: %v", cells, want, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(want*b.N), "ns/cell")
		})
	}
}

// fillInRounds writes rows as scrapes do: some cells of every row, then the
// next ones.
func fillInRounds(b *testing.B, s *pebble.Store, rows, cells int) {
	b.Helper()
	const perRound = 240
	for done := 0; done < cells; done += perRound {
		var muts []bucketstore.Mutation
		for i := range rows {
			muts = append(muts, benchRow(i, done, min(perRound, cells-done)))
		}
		if err := s.Apply(b.Context(), bucketstore.Metric, muts); err != nil {
			b.Fatal(err)
		}
	}
}
