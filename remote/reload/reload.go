// Package reload keeps what a file of the configuration says, and reads the file again when it changes.
package reload

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
)

// interval is how often a file is read again. It is read whole: times of files are coarse, and where directories are
// swapped, as Kubernetes does, they may go back.
const interval = 2 * time.Second

// Config says what a File is made of. All of it is required.
type Config[T any] struct {
	Path string
	// Parse reads the text of the file. Its error becomes part of "file PATH, ERROR".
	Parse  func(text []byte) (T, error)
	Logger log.Logger
	// Good is 1 if the value in force is that of the file as it is now, and 0 if it could not be read again.
	Good prometheus.Gauge
}

// A File has the value that a file says. It is safe for concurrent use.
type File[T any] struct {
	cfg    Config[T]
	loaded atomic.Pointer[loaded[T]]
}

// loaded is what was read last.
type loaded[T any] struct {
	// value is the one in force.
	value T
	// text is that of the file, and err what is wrong with it, or nil.
	text []byte
	err  error
}

// Open reads a file.
func Open[T any](cfg Config[T]) (*File[T], error) {
	text, err := os.ReadFile(cfg.Path)
	if err != nil {
		return nil, err
	}
	value, err := cfg.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("file %s, %w", cfg.Path, err)
	}
	f := &File[T]{cfg: cfg}
	f.loaded.Store(&loaded[T]{value: value, text: text})
	cfg.Good.Set(1)
	return f, nil
}

// Run reads the file again when it changes, until ctx ends.
func (f *File[T]) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Reload()
		}
	}
}

// Reload reads the file again. If something is wrong with it, the value before stays in force, and that is logged once.
// No two calls may run at the same time.
func (f *File[T]) Reload() {
	before := f.loaded.Load()
	text, err := os.ReadFile(f.cfg.Path)
	value := before.value
	if err == nil {
		if before.err == nil && bytes.Equal(text, before.text) {
			return
		}
		var parsed T
		if parsed, err = f.cfg.Parse(text); err == nil {
			value = parsed
		}
	}
	f.loaded.Store(&loaded[T]{value, text, err})
	if err == nil {
		f.cfg.Good.Set(1)
		level.Info(f.cfg.Logger).Log("msg", "a file that has changed is loaded", "file", f.cfg.Path)
		return
	}
	f.cfg.Good.Set(0)
	if before.err == nil || before.err.Error() != err.Error() {
		level.Error(f.cfg.Logger).Log("msg", "a file that has changed is not loaded, what it said before stays in force", "file", f.cfg.Path, "err", err)
	}
}

// Path returns that of the file.
func (f *File[T]) Path() string { return f.cfg.Path }

// Value returns what is in force. The error says why that is not what the file has now.
func (f *File[T]) Value() (T, error) {
	now := f.loaded.Load()
	return now.value, now.err
}
