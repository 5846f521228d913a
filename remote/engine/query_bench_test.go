//go:build unix

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/ingest"
)

// BenchmarkQuery evaluates queries over 3,000 series of four hours in an embedded store, most of them flushed. It reports the CPU time, too,
// of all goroutines.
func BenchmarkQuery(b *testing.B) {
	const size, samples = 3000, 960
	f := openBuffered(b)
	for at := int64(someTime); at < someTime+samples*15_000; at += 15_000 {
		batch := make([]ingest.Series, size)
		for i := range batch {
			ls := labels.FromStrings("__name__", "http_request_duration_seconds_bucket", "code", fmt.Sprint(i%5), "instance", fmt.Sprintf("node-%04d.example.com:9100", i/50), "job", "node", "le", fmt.Sprint(i%50))
			batch[i] = ingest.Series{Labels: ls, Samples: []ingest.Sample{{T: at, V: float64(at-someTime) / 1000 * float64(i%7)}}}
		}
		var rejected ingest.Rejected
		if _, err := f.Append(b.Context(), batch, &rejected); err != nil {
			b.Fatal(err)
		}
	}
	e := eval.New(queryOptions(), eval.NewMemory(0, 0))
	for _, qs := range []string{
		"sum by (code) (rate(http_request_duration_seconds_bucket[5m]))",
		"max by (code) (max_over_time(http_request_duration_seconds_bucket[10m]))",
		"avg by (code) (http_request_duration_seconds_bucket)",
	} {
		for _, hours := range []int64{1, 4} {
			b.Run(fmt.Sprintf("%.3s %dh", qs, hours), func(b *testing.B) {
				b.ReportAllocs()
				before := cpu()
				for b.Loop() {
					q, err := e.NewRangeQuery(b.Context(), f, nil, qs, time.UnixMilli(someTime+(4-hours)*3_600_000+600_000), time.UnixMilli(someTime+4*3_600_000), time.Minute)
					if err != nil {
						b.Fatal(err)
					}
					if res := q.Exec(b.Context()); res.Err != nil {
						b.Fatal(res.Err)
					}
					q.Close()
				}
				b.ReportMetric(float64(cpu()-before)/float64(b.N)/1e6, "cpu-ms/op")
			})
		}
	}
}

// openBuffered opens an engine on an empty embedded store behind a buffer that flushes most of its chunks.
func openBuffered(b *testing.B) *engine.Engine {
	b.Helper()
	c := newClock(someTime + 4*3_600_000)
	store, err := pebble.Open(pebble.Config{Dir: b.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{}), Now: c.now})
	if err != nil {
		b.Fatal(err)
	}
	dir, err := buffer.OpenDir(b.TempDir(), c.now())
	if err != nil {
		b.Fatal(err)
	}
	buffered, err := buffer.Open(b.Context(), dir, buffer.Config{Store: store, Now: c.now, FsyncInterval: time.Second, MaxOpenBytes: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: buffered, Appender: buffered, Now: c.now, MaxFuture: engine.Unbounded, CurrentInterval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(e.Close(context.Background()), buffered.Close()); err != nil {
			b.Error(err)
		}
	})
	return e
}

// cpu returns what the process has taken.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
