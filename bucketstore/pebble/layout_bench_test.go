package pebble_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// A chunkLoad is the load of the layout benchmarks: for each window a chunk of every row.
type chunkLoad struct{ rows, windows int }

const (
	chunkBatch = 5_000
	chunkBytes = 300
	// chunksBegin is a window some days into the bucket of benchKey.
	chunksBegin = 100
)

// withChunks is onDisk with the family of chunks.
func withChunks(dir string) pebble.Config {
	cfg := onDisk(dir)
	for i, spec := range cfg.Tables {
		if spec.Table == bucketstore.Metric {
			cfg.Tables[i].Families = metricFamilies(0)
		}
	}
	return cfg
}

// metricFamilies returns the families of METRIC, that of chunks among them.
func metricFamilies(maxAge time.Duration) []bucketstore.FamilySpec {
	var specs []bucketstore.FamilySpec
	for _, name := range []string{"c", "e", "l", "r0", "r1", "r2", "r3"} {
		specs = append(specs, bucketstore.FamilySpec{Name: name, MaxAge: maxAge})
	}
	return specs
}

// allChunks asks for all rows and families of METRIC, chunks included.
func allChunks() bucketstore.ScanRequest {
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{{}}}
	for _, spec := range metricFamilies(0) {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: spec.Name})
	}
	return req
}

// chunkQualifier is that of a chunk that fills a window.
func chunkQualifier(window int) []byte {
	qual := series.AppendQualifier(nil, uint32(int64(window)*series.Window))
	qual = series.AppendQualifier(qual, uint32(int64(window+1)*series.Window-15_000))
	return append(qual, 1, 2, 3, 4)
}

// window writes a chunk of each row, in an order that is not that of the keys.
func (l chunkLoad) window(b *testing.B, s *pebble.Store, random *rand.ChaCha8, window int) {
	b.Helper()
	for from := 0; from < l.rows; from += chunkBatch {
		muts := make([]bucketstore.Mutation, chunkBatch)
		for i := range muts {
			value := make([]byte, chunkBytes)
			random.Read(value) // It never fails.
			muts[i] = bucketstore.Mutation{Key: benchKey((from + i) * 7919 % l.rows), Ops: []bucketstore.Op{{
				Family: "c", Qualifier: chunkQualifier(window), Time: int64(window+1) * series.Window, Value: value,
			}}}
		}
		if err := s.Apply(b.Context(), bucketstore.Metric, muts); err != nil {
			b.Fatal(err)
		}
	}
}

// write writes all windows and waits until nothing is left to compact.
func (l chunkLoad) write(b *testing.B, s *pebble.Store) {
	b.Helper()
	random := rand.NewChaCha8([32]byte{1})
	for w := range l.windows {
		l.window(b, s, random, chunksBegin+w)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for quiet := 0; quiet < 10; quiet++ {
		m := s.EngineMetrics()
		if m.Compact.NumInProgress > 0 || m.Flush.NumInProgress > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			b.Fatal("compactions do not end")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cpuSeconds is the CPU time of this process.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// BenchmarkChunkWrite needs one iteration only: -benchtime=1x.
func BenchmarkChunkWrite(b *testing.B) {
	for _, tc := range []struct {
		name string
		load chunkLoad
	}{
		{"20 windows of 50000 rows", chunkLoad{rows: 50_000, windows: 20}},
		{"200 windows of 10000 rows", chunkLoad{rows: 10_000, windows: 200}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			for b.Loop() {
				s := openStore(b, withChunks(b.TempDir()))
				began := cpuSeconds(b)
				tc.load.write(b, s)
				used := cpuSeconds(b) - began
				m := s.EngineMetrics()
				tables := uint64(0)
				for _, level := range m.Levels {
					tables += level.TableBytesFlushed + level.TableBytesCompacted
				}
				b.ReportMetric(used/float64(tc.load.rows*tc.load.windows)*1e6, "cpu-s/Mcell")
				b.ReportMetric(float64(tables+m.WAL.BytesWritten)/1e6, "written-MB")
				b.ReportMetric(float64(tables)/float64(m.WAL.BytesWritten), "table-bytes/log-byte")
				b.ReportMetric(float64(m.DiskSpaceUsage())/1e6, "disk-MB")
			}
		})
	}
}

func BenchmarkChunkScan(b *testing.B) {
	s := openStore(b, withChunks(b.TempDir()))
	const windows = 20
	chunkLoad{rows: 50_000, windows: windows}.write(b, s)
	const rows = 5_000
	single := func(step int) (ranges []series.RowRange) {
		for i := range rows {
			ranges = append(ranges, series.SingleRow(benchKey(i*step)))
		}
		return ranges
	}
	for _, tc := range []struct {
		name     string
		rows     []series.RowRange
		from, to int // windows
	}{
		{"2 cells of adjacent rows", single(1), 4, 6},
		{"2 cells of every tenth row", single(10), 4, 6},
		{"20 cells of adjacent rows", single(1), 0, windows},
		{"20 cells of every tenth row", single(10), 0, windows},
		{"20 cells of a range", []series.RowRange{{Start: benchKey(0), Limit: benchKey(rows)}}, 0, windows},
	} {
		b.Run(tc.name, func(b *testing.B) {
			req := allChunks()
			req.Rows = tc.rows
			for i := range req.Families {
				req.Families[i].Start = chunkQualifier(chunksBegin + tc.from)[:4]
				req.Families[i].Limit = chunkQualifier(chunksBegin + tc.to)[:4]
			}
			b.ReportAllocs()
			began := cpuSeconds(b)
			for b.Loop() {
				found, cells := 0, 0
				err := s.Scan(b.Context(), req, func(row bucketstore.Row) error {
					found++
					cells += len(row.Cells)
					return nil
				})
				if err != nil || found < rows || cells != found*(tc.to-tc.from) {
					b.Fatalf("%d rows, %d cells: %v", found, cells, err)
				}
			}
			b.ReportMetric((cpuSeconds(b)-began)*1e9/float64(rows*b.N), "cpu-ns/row")
		})
	}
}
