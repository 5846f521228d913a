// Package carry takes panics of goroutines to those who wait for them. Left alone
// a panic there ends the process, whoever waits; net/http, PromQL and others who
// recover see only those of their own.
package carry

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A Panic is a panic of another goroutine.
type Panic struct {
	// Value is what it was called with.
	Value any
	// Stack is that of the goroutine.
	Stack []byte
}

// Error implements error. Some who recover show it to clients, so that it has no
// stack.
func (p *Panic) Error() string {
	return fmt.Sprintf("panic in another goroutine: %v", p.Value)
}

// RuntimeError implements runtime.Error: PromQL logs those, and no other errors,
// that it recovers.
func (p *Panic) RuntimeError() {}

// Unwrap returns the value if it is an error, as those of the runtime are.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Run calls fn and returns its error, or its panic as a *Panic.
func Run(fn func() error) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *Panic: // it was carried before
			err = value
		default:
			err = &Panic{value, debug.Stack()}
		}
	}()
	return fn()
}

// On panics if err is, or wraps, the *Panic of a Run. Else it returns err.
func On(err error) error {
	var p *Panic
	if errors.As(err, &p) {
		panic(p)
	}
	return err
}
