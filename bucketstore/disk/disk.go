// Package disk refuses writes while a file system has little free space. A full disk would
// end the process, and a start on it needs space too. Reads, flushes and compactions go on.
package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// Usage is the space of a file system in bytes.
type Usage struct {
	// Free is what this process may still allocate.
	Free, Total uint64
}

// floorShare bounds the floor of a small file system: 5 % of it.
const floorShare = 20

// Floor returns the least free space, in bytes, with which a file system of this size takes
// writes: minFree, and at most a twentieth of the total.
func Floor(minFree, total uint64) uint64 { return min(minFree, total/floorShare) }

// ErrLittleSpace marks a write that was refused.
var ErrLittleSpace = errors.New("little free space")

// interval is the least time between two questions for the free space.
const interval = time.Second

// Config says what a Watch looks at. Usage and Now are required.
type Config struct {
	// Paths are directories on the file systems.
	Paths []string
	// MinFree is the floor in bytes, see Floor. 0 refuses nothing.
	MinFree uint64
	// Usage returns the space of the file system of a directory.
	Usage func(path string) (Usage, error)
	// Stat, if set, says which file a path is, as os.Stat. Once a path is another directory than
	// that of the first time, or none, nothing is written: what is open there has been removed.
	Stat func(path string) (os.FileInfo, error)
	// Now is the clock.
	Now func() time.Time
	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics adapter_disk_*. It may be nil.
	Registerer prometheus.Registerer
}

// A Watch knows whether its file systems have enough free space. Its methods may be called
// concurrently.
type Watch struct {
	cfg     Config
	refused prometheus.Counter

	mu sync.Mutex
	// asked is when the states were read.
	asked  time.Time
	states []state
}

// A state is what is known of the file system of a path.
type state struct {
	path        string
	free, floor uint64
	isLow       bool
	// dir is the directory that was there first.
	dir os.FileInfo
	// failure says why the free space is unknown, or that the directory is another one.
	failure error
}

// New returns a Watch.
func New(cfg Config) *Watch {
	if cfg.Logger == nil {
		cfg.Logger = log.NewNopLogger()
	}
	f := metricset.New(cfg.Registerer)
	w := &Watch{cfg: cfg, refused: f.Counter("adapter_disk_refused_writes_total",
		"Writes that were refused because a file system had less free space than its floor.")}
	for i, path := range cfg.Paths {
		w.states = append(w.states, state{path: path})
		if err := w.checkSame(&w.states[i]); err != nil {
			w.fail(&w.states[i], err)
		}
	}
	for i, path := range cfg.Paths { // now that all states are there: the registry may be gathered at any time
		gauge := func(name, help string, value func(*state) uint64) {
			f.With(prometheus.Labels{"path": path}).GaugeFunc(name, help, func() float64 { return w.read(i, value) })
		}
		gauge("adapter_disk_free_bytes", "Free space of the file system of a directory.", func(s *state) uint64 { return s.free })
		gauge("adapter_disk_min_free_bytes", "Free space below which writes are refused.", func(s *state) uint64 { return s.floor })
	}
	return w
}

// read returns a value of the i-th state.
func (w *Watch) read(i int, value func(*state) uint64) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	return float64(value(&w.states[i]))
}

// Admit returns nil if a write may be accepted now, else an error that says why: an ErrLittleSpace, or
// that the free space is unknown or the directory another one.
func (w *Watch) Admit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	for i := range w.states {
		s := &w.states[i]
		if s.failure != nil {
			w.refused.Inc()
			return fmt.Errorf("%s takes no writes: %w", s.path, s.failure)
		}
		if s.isLow {
			w.refused.Inc()
			return fmt.Errorf("%w: the file system of %s has %d bytes free, and takes writes from %d bytes on (--storage.min-free-space)",
				ErrLittleSpace, s.path, s.free, s.floor)
		}
	}
	return nil
}

// refresh reads the states if they are old, with mu held.
func (w *Watch) refresh() {
	now := w.cfg.Now()
	if age := now.Sub(w.asked); age >= 0 && age < interval {
		return
	}
	w.asked = now
	for i := range w.states {
		s := &w.states[i]
		usage, err := w.cfg.Usage(s.path)
		if err = errors.Join(w.checkSame(s), err); err != nil {
			w.fail(s, err)
			continue
		}
		s.failure = nil
		s.free, s.floor = usage.Free, Floor(w.cfg.MinFree, usage.Total)
		if isLow := s.free < s.floor; isLow != s.isLow {
			s.isLow = isLow
			w.logChange(s)
		}
	}
}

// checkSame returns an error if the path of s is not the directory that it was first.
func (w *Watch) checkSame(s *state) error {
	if w.cfg.Stat == nil {
		return nil
	}
	dir, err := w.cfg.Stat(s.path)
	if err != nil {
		return err
	}
	if s.dir == nil {
		s.dir = dir
	}
	if !os.SameFile(s.dir, dir) {
		return errors.New("it is another directory than the one that was opened: it was removed or replaced; restart the adapter")
	}
	return nil
}

// fail notes why writes are refused, and logs it if it is new.
func (w *Watch) fail(s *state, err error) {
	if s.failure == nil || err.Error() != s.failure.Error() {
		level.Error(w.cfg.Logger).Log("msg", "free space is unknown: writes are refused", "path", s.path, "err", err)
	}
	s.failure = err
}

func (w *Watch) logChange(s *state) {
	if s.isLow {
		level.Error(w.cfg.Logger).Log("msg", "little free space: writes are refused until there is more; reads go on", "path", s.path, "free_bytes", s.free, "min_free_bytes", s.floor)
		return
	}
	level.Info(w.cfg.Logger).Log("msg", "enough free space again: writes are accepted", "path", s.path, "free_bytes", s.free, "min_free_bytes", s.floor)
}
