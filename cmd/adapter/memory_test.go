package main

import (
	"errors"
	"testing"

	"github.com/alecthomas/units"
)

// TestMemory: defaults fit into the memory that is there, what is given stays, and on a large machine nothing is larger than by default.
func TestMemory(t *testing.T) {
	for _, tt := range []struct {
		name  string
		there units.Base2Bytes
		args  []string
		want  [5]units.Base2Bytes // of the buffer, all queries, a query, the index, results
	}{
		{"a small container", units.GiB, []string{"--auto-gomemlimit.ratio=0.5"}, [5]units.Base2Bytes{64 * units.MiB, 128 * units.MiB, 64 * units.MiB, 64 * units.MiB, 16 * units.MiB}},
		{"given", units.GiB, []string{"--auto-gomemlimit.ratio=0.5", "--buffer.max-memory=1GiB", "--query.results-cache-bytes=0"}, [5]units.Base2Bytes{units.GiB, 128 * units.MiB, 64 * units.MiB, 64 * units.MiB, 0}},
		{"a large machine", units.TiB, nil, [5]units.Base2Bytes{512 * units.MiB, 4 * units.GiB, units.GiB, units.GiB, 64 * units.MiB}},
		{"off", units.GiB, []string{"--no-auto-gomemlimit"}, [5]units.Base2Bytes{512 * units.MiB, 4 * units.GiB, units.GiB, units.GiB, 64 * units.MiB}},
		{"not known", 0, nil, [5]units.Base2Bytes{512 * units.MiB, 4 * units.GiB, units.GiB, units.GiB, 64 * units.MiB}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := parseFlagsOn(tt.args, func() (uint64, error) {
				if tt.there == 0 {
					return 0, errors.New("no cgroup")
				}
				return uint64(tt.there), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			got := [5]units.Base2Bytes{o.bufferMemory.Base2Bytes, o.totalMemory.Base2Bytes, o.queryMemory.Base2Bytes, o.indexMemory.Base2Bytes, o.resultsCache.Base2Bytes}
			if got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	parseOrRefuse(t, []string{"--auto-gomemlimit.ratio=1.5"}, "--auto-gomemlimit.ratio=1.5")
}
