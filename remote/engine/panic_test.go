package engine_test

import (
	"context"
	"testing"

	"github.com/promtable/promtable/index/repanic"
)

// A panic while rows are read goes on in the goroutine that asked for them,
// whichever has read.
func TestSelectPanics(t *testing.T) {
	for _, tt := range []struct {
		name   string
		scans  int
		ahead  bool // it happens in the batch that is read ahead
		series int  // that are delivered before
	}{
		{"at once", 1, false, 0},
		{"side by side", 4, false, 0},
		{"ahead", 1, true, 64},
		{"ahead and side by side", 4, true, 64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, w := openWatched(t, many(200, someTime), parallel(tt.scans))
			f.SetMinScanSeries(1)
			broken := !tt.ahead
			w.before = func(context.Context, int32) error {
				if broken {
					panic("a defect")
				}
				return nil
			}
			n := 0
			value := panicOf(func() {
				set, err := f.Select(t.Context(), everything())
				if err != nil {
					t.Fatal(err)
				}
				broken = true
				for set.Next() {
					n++
				}
				t.Errorf("no panic, error %v", set.Err())
			})
			if p, ok := value.(*repanic.Panic); ok {
				value = p.Value
			}
			if value != "a defect" || n != tt.series {
				t.Errorf("%d series, then panic %v", n, value)
			}
			if n := w.running.Load(); n != 0 {
				t.Errorf("%d scans are running", n)
			}
		})
	}
}

// panicOf returns what fn panics with.
func panicOf(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}
