// Package repanic hands the panic of a goroutine to the goroutine that waits for it.
// Left alone, such a panic ends the process: net/http and PromQL recover only panics of
// their own goroutines.
package repanic

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// A Panic is a panic of another goroutine.
type Panic struct {
	// Value is the argument of panic.
	Value any
	// Stack is that of the goroutine.
	Stack []byte
}

// Error implements error. PromQL shows it to clients, so it has no stack.
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

// Catch calls fn and returns its error, or its panic as a *Panic.
func Catch(fn func() error) (err error) {
	defer func() {
		switch value := recover().(type) {
		case nil:
		case *Panic: // of an inner Catch
			err = value
		default:
			err = &Panic{value, debug.Stack()}
		}
	}()
	return fn()
}

// Rethrow panics if err is, or wraps, the *Panic of a Catch. Else it returns err.
func Rethrow(err error) error {
	var p *Panic
	if errors.As(err, &p) {
		panic(p)
	}
	return err
}
