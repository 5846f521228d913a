package repanic_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/index/repanic"
)

var errOwn = errors.New("an error of its own")

func outOfRange() error {
	var none []int
	return fmt.Errorf("%d", none[len(none)])
}

// TestCarry: an error stays one, a panic goes on where it is waited for, with the
// stack of where it began.
func TestCarry(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fn    func() error
		err   error
		value string // of the panic
	}{
		{"nothing", func() error { return nil }, nil, ""},
		{"an error", func() error { return errOwn }, errOwn, ""},
		{"a panic", func() error { panic("by hand") }, nil, "by hand"},
		{"a panic of the runtime", outOfRange, nil, "index out of range"},
		{"twice", func() error { return repanic.Rethrow(repanic.Catch(outOfRange)) }, nil, "index out of range"},
		{"wrapped", func() error { return fmt.Errorf("read: %w", repanic.Catch(outOfRange)) }, nil, "index out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err, p := wait(tt.fn)
			if !errors.Is(err, tt.err) {
				t.Errorf("error %v, want %v", err, tt.err)
			}
			if (p != nil) != (tt.value != "") {
				t.Fatalf("panic %v", p)
			}
			if p == nil {
				return
			}
			if text := p.Error(); !strings.Contains(text, tt.value) || strings.Contains(text, "\n") {
				t.Errorf("panic %s", text)
			}
			if stack := string(p.Stack); !strings.Contains(stack, "repanic_test.go") || strings.Count(stack, "goroutine ") > 3 {
				t.Errorf("stack %s", stack)
			}
			if _, ok := error(p).(runtime.Error); !ok {
				t.Error("no error of the runtime, as PromQL logs them")
			}
		})
	}
}

// wait runs fn in a goroutine, and returns what came of it.
func wait(fn func() error) (err error, p *repanic.Panic) {
	defer func() { p, _ = recover().(*repanic.Panic) }()
	var group errgroup.Group
	group.Go(func() error { return repanic.Catch(fn) })
	return repanic.Rethrow(group.Wait()), nil
}
