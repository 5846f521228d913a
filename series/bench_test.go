package series_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series"
)

// benchLabels is a label set of the size and shape that a Kubernetes scrape gives.
func benchLabels() labels.Labels {
	return labels.FromStrings(
		labels.MetricName, "http_request_duration_seconds_bucket",
		"cluster", "eu-west-1-production",
		"container", "api-server",
		"handler", "/api/v1/query_range",
		"instance", "10.128.14.203:9090",
		"job", "monitoring/api-server",
		"le", "0.25",
		"method", "GET",
		"namespace", "monitoring",
		"pod", "api-server-6d4cf56db6-x2x7k",
	)
}

var benchSchemas = []struct {
	name     string
	resource []string
	tenant   string
}{
	{name: "plain"},
	{name: "resources and tenant", resource: []string{"instance", "pod"}, tenant: "team-a"},
}

// forSchemas runs fn once per schema with the series key of benchLabels.
func forSchemas(b *testing.B, fn func(b *testing.B, s series.Schema, tenant string, ls labels.Labels, key []byte)) {
	for _, bs := range benchSchemas {
		b.Run(bs.name, func(b *testing.B) {
			s := newSchema(b, bs.resource, bs.tenant != "")
			ls := benchLabels()
			b.ReportAllocs()
			fn(b, s, bs.tenant, ls, appendSeriesKey(b, s, bs.tenant, ls))
		})
	}
}

func BenchmarkAppendSeriesKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, tenant string, ls labels.Labels, key []byte) {
		var err error
		for b.Loop() {
			if key, err = s.AppendSeriesKey(key[:0], tenant, ls); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkParseSeriesKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ string, _ labels.Labels, key []byte) {
		scratch := labels.NewScratchBuilder(16)
		for b.Loop() {
			if _, _, err := s.ParseSeriesKey(key, &scratch); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendRowKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ string, _ labels.Labels, key []byte) {
		var row []byte
		for b.Loop() {
			row = s.AppendRowKey(row[:0], key, 399*series.Period)
		}
	})
}

func BenchmarkParseRowKey(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, _ string, _ labels.Labels, key []byte) {
		row := s.AppendRowKey(nil, key, 399*series.Period)
		for b.Loop() {
			var err error
			if key, _, err = s.ParseRowKey(key[:0], row); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendPosting(b *testing.B) {
	forSchemas(b, func(b *testing.B, s series.Schema, tenant string, _ labels.Labels, key []byte) {
		var posting []byte
		for b.Loop() {
			var err error
			posting, err = s.AppendPosting(posting[:0], tenant, "pod", "api-server-6d4cf56db6-x2x7k", 3000*series.IndexPeriod, key)
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A benchRow is one row to read again and again.
type benchRow struct {
	name        string
	chunks      []series.Chunk
	quals, vals [][]byte
	samples     int
}

// benchRows are eight chunks of 500 samples at 15 s, dense or XOR, without and
// with 5 % raw cells among them.
func benchRows(t testing.TB) (rows []benchRow) {
	for _, encoding := range []byte{series.EncodingDense, byte(chunkenc.EncXOR)} {
		row := benchRow{name: fmt.Sprintf("encoding %d", encoding), samples: 4000}
		for w := range int64(8) {
			var samples []timedValue
			for i := range int64(500) {
				samples = append(samples, timedValue{rowBase + w*series.Window + i*15000, series.Value{Float: float64(w*5000 + i*i%37*8)}})
			}
			row.chunks = append(row.chunks, sealed(t, encoding, rowBase, 1, samples))
		}
		mixed := row
		mixed.name += ", 5 % raw"
		for w := range int64(8) {
			for i := range int64(25) {
				mixed.quals = append(mixed.quals, series.AppendQualifier(nil, uint32(w*series.Window+i*20*15000+7)))
				mixed.vals = append(mixed.vals, series.AppendFloat(nil, 5))
			}
		}
		mixed.samples += len(mixed.quals)
		rows = append(rows, row, mixed)
	}
	return rows
}

// begin begins to read the row.
func (row benchRow) begin(t testing.TB, rs *series.RowSamples) {
	rs.Reset(rowBase, 0, math.MaxInt64)
	for _, c := range row.chunks {
		rs.AddChunk(c)
	}
	for i, qual := range row.quals {
		if err := rs.AddRaw(series.FamilyLate, qual, row.vals[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// read reads the row sample by sample.
func (row benchRow) read(t testing.TB, rs *series.RowSamples) {
	row.begin(t, rs)
	n, sum, last := 0, 0.0, int64(0)
	for rs.Next() {
		if rs.IsFloat() {
			sum += rs.Float()
		}
		last = rs.T()
		n++
	}
	if n != row.samples || rs.Err() != nil || sum == 0 || last == 0 {
		t.Fatalf("%s: %d samples, %v", row.name, n, rs.Err())
	}
}

// readRuns reads the row with as many samples at once as can be.
func (row benchRow) readRuns(t testing.TB, rs *series.RowSamples) {
	row.begin(t, rs)
	n := 0
	for rs.Next() {
		ts, _ := rs.Floats()
		n += max(1, len(ts))
	}
	if n != row.samples || rs.Err() != nil {
		t.Fatalf("%s: %d samples, %v", row.name, n, rs.Err())
	}
}

func BenchmarkRowSamples(b *testing.B) {
	for _, row := range benchRows(b) {
		for how, read := range map[string]func(testing.TB, *series.RowSamples){"one by one": row.read, "in runs": row.readRuns} {
			b.Run(row.name+"/"+how, func(b *testing.B) {
				var rs series.RowSamples
				b.ReportAllocs()
				for b.Loop() {
					read(b, &rs)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(row.samples), "ns/sample")
			})
		}
	}
}
