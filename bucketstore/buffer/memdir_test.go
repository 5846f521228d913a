package buffer

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/promtable/promtable/bucketstore/durable"
)

// A MemDir is a directory in memory that knows what is durable. It fails and loses power on
// demand. It is safe for concurrent use.
type MemDir struct {
	mu    sync.Mutex
	files map[string]*memFile
	// durable are the files after the last sync of the directory, and changes what came
	// after it, in order.
	durable map[string]*memFile
	changes []dirChange
	locked  bool
	// room is the size that all files may have together. 0 is no limit.
	room int
	// ops counts the operations that change something or make it durable.
	ops   int
	fault func(op int, what string) Fault
	off   bool
}

// A Fault is what becomes of an operation.
type Fault struct {
	// Err fails the operation. With Part, half of a write happens nevertheless.
	Err  error
	Part bool
	// PowerOff fails this operation and all after it.
	PowerOff bool
}

// ErrPowerOff is the error of all operations after the loss of power.
var ErrPowerOff = errors.New("the power is off")

// A memFile is the content of a file: as a process reads it, and as it was durable at the
// last sync, with the writes after it. A Truncate is a write without data.
type memFile struct {
	data, durable []byte
	writes        []memWrite
}

type memWrite struct {
	at   int
	data []byte
}

// apply returns content after the write.
func (w memWrite) apply(content []byte) []byte {
	end := w.at + len(w.data)
	if w.data == nil || end > len(content) {
		content = append(content, make([]byte, max(0, end-len(content)))...)[:end]
	}
	copy(content[w.at:], w.data)
	return content
}

// A dirChange sets names to files. A nil file removes the name.
type dirChange map[string]*memFile

func (c dirChange) apply(files map[string]*memFile) {
	for name, f := range c {
		if files[name] = f; f == nil {
			delete(files, name)
		}
	}
}

// NewMemDir returns an empty directory.
func NewMemDir() *MemDir {
	return &MemDir{files: make(map[string]*memFile), durable: make(map[string]*memFile)}
}

// SetRoom sets the size that all files may have together. 0 is no limit.
func (d *MemDir) SetRoom(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = bytes
}

// Used is the size of all files together.
func (d *MemDir) Used() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used()
}

func (d *MemDir) used() (bytes int) {
	for _, f := range d.files {
		bytes += len(f.data)
	}
	return bytes
}

// SetFault has fn called before each operation that changes something, with their number
// from 0 and a description.
func (d *MemDir) SetFault(fn func(op int, what string) Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops, d.fault = 0, fn
}

// PowerOff fails all operations from now on.
func (d *MemDir) PowerOff() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// IsOff says whether the power is off.
func (d *MemDir) IsOff() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

// Reboot returns what is there after the power came back. keep decides of each change that
// was not synced, in order, whether it is there; of a write half may be. Bytes that are not
// there are zeros if a later write of the file is.
func (d *MemDir) Reboot(keep func() bool) *MemDir {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := NewMemDir()
	files := make(map[string]*memFile)
	for name, f := range d.durable {
		files[name] = f
	}
	for _, c := range d.changes {
		if keep() {
			c.apply(files)
		}
	}
	for name, f := range files {
		content := slices.Clone(f.durable)
		for _, w := range f.writes {
			switch {
			case keep():
			case len(w.data) > 1 && keep():
				w.data = w.data[:len(w.data)/2]
			default:
				continue
			}
			content = w.apply(content)
		}
		after.files[name] = &memFile{data: content, durable: slices.Clone(content)}
		after.durable[name] = after.files[name]
	}
	return after
}

// Survive returns what is there after the death of the process.
func (d *MemDir) Survive() *MemDir {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := NewMemDir()
	after.durable, after.changes, after.room = d.durable, d.changes, d.room
	for name, f := range d.files {
		after.files[name] = f
	}
	return after
}

// Tear appends half a frame to the last segment, as the death of the process in a write.
func (d *MemDir) Tear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := ""
	for name := range d.files {
		if strings.HasSuffix(name, ".log") {
			last = max(last, name)
		}
	}
	if last != "" && !d.off {
		d.files[last].write(memWrite{len(d.files[last].data), make([]byte, frameHead+1)})
	}
}

// begin counts an operation. It returns with mu held.
func (d *MemDir) begin(format string, args ...any) Fault {
	d.mu.Lock()
	if d.off {
		return Fault{Err: ErrPowerOff}
	}
	if d.fault == nil {
		return Fault{}
	}
	fault := d.fault(d.ops, fmt.Sprintf(format, args...))
	d.ops++
	if fault.PowerOff {
		d.off = true
		return Fault{Err: ErrPowerOff}
	}
	return fault
}

// change changes the directory, with mu held.
func (d *MemDir) change(c dirChange) {
	c.apply(d.files)
	d.changes = append(d.changes, c)
}

func (d *MemDir) Path() string { return "/memory" }

func (d *MemDir) Make() error {
	defer d.mu.Unlock()
	return d.begin("make").Err
}

func (d *MemDir) Names() ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.files)), nil
}

func (d *MemDir) Open(name string, flag int) (durable.File, error) {
	if flag&(os.O_CREATE|os.O_TRUNC) == 0 {
		d.mu.Lock()
	} else if err := d.begin("open %s", name).Err; err != nil {
		d.mu.Unlock()
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer d.mu.Unlock()
	f, ok := d.files[name]
	switch {
	case ok && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case !ok && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case !ok:
		if d.room > 0 && d.used() >= d.room {
			return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
		}
		f = new(memFile)
		d.change(dirChange{name: f})
	case flag&os.O_TRUNC != 0:
		f.write(memWrite{})
	}
	return &memHandle{dir: d, file: f, name: name}, nil
}

func (d *MemDir) Rename(from, to string) error {
	fault := d.begin("rename %s", from)
	defer d.mu.Unlock()
	if fault.Err != nil {
		return fault.Err
	}
	d.change(dirChange{to: d.files[from], from: nil})
	return nil
}

func (d *MemDir) Remove(name string) error {
	fault := d.begin("remove %s", name)
	defer d.mu.Unlock()
	if fault.Err != nil {
		return fault.Err
	}
	if _, ok := d.files[name]; !ok {
		return fs.ErrNotExist
	}
	d.change(dirChange{name: nil})
	return nil
}

func (d *MemDir) Sync() error {
	fault := d.begin("sync the directory")
	defer d.mu.Unlock()
	if fault.Err != nil {
		return fault.Err
	}
	for _, c := range d.changes {
		c.apply(d.durable)
	}
	d.changes = nil
	return nil
}

func (d *MemDir) Lock(name string) (unlock func() error, err error) {
	if _, err := d.Open(name, os.O_CREATE); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, syscall.EAGAIN
	}
	d.locked = true
	return func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.locked = false
		return nil
	}, nil
}

// write changes the content.
func (f *memFile) write(w memWrite) {
	f.data = w.apply(f.data)
	f.writes = append(f.writes, w)
}

// A memHandle is an open file.
type memHandle struct {
	dir  *MemDir
	file *memFile
	name string
}

// Write appends.
func (h *memHandle) Write(b []byte) (int, error) { return h.writeAt(b, -1) }

func (h *memHandle) WriteAt(b []byte, at int64) (int, error) { return h.writeAt(b, int(at)) }

func (h *memHandle) writeAt(b []byte, at int) (n int, err error) {
	fault := h.dir.begin("write %d bytes to %s", len(b), h.name)
	defer h.dir.mu.Unlock()
	if at < 0 {
		at = len(h.file.data)
	}
	switch grow := at + len(b) - len(h.file.data); {
	case fault.Err != nil && fault.Part:
		n, err = len(b)/2, fault.Err
	case fault.Err != nil:
		return 0, fault.Err
	case h.dir.room > 0 && grow > 0 && h.dir.used()+grow > h.dir.room:
		n, err = max(0, len(b)-(h.dir.used()+grow-h.dir.room)), syscall.ENOSPC
	default:
		n = len(b)
	}
	if n > 0 {
		h.file.write(memWrite{at, slices.Clone(b[:n])})
	}
	if err != nil {
		err = &fs.PathError{Op: "write", Path: h.name, Err: err}
	}
	return n, err
}

func (h *memHandle) ReadAt(b []byte, at int64) (int, error) {
	h.dir.mu.Lock()
	defer h.dir.mu.Unlock()
	if at >= int64(len(h.file.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.file.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *memHandle) Truncate(size int64) error {
	fault := h.dir.begin("truncate %s", h.name)
	defer h.dir.mu.Unlock()
	if fault.Err == nil {
		h.file.write(memWrite{at: int(size)})
	}
	return fault.Err
}

// Sync makes the content durable. After an error what was not durable never will be, as on
// Linux.
func (h *memHandle) Sync() error {
	fault := h.dir.begin("sync %s", h.name)
	defer h.dir.mu.Unlock()
	for _, w := range h.file.writes {
		if fault.Err == nil {
			h.file.durable = w.apply(h.file.durable)
		}
	}
	h.file.writes = nil
	return fault.Err
}

func (h *memHandle) Close() error {
	fault := h.dir.begin("close %s", h.name)
	defer h.dir.mu.Unlock()
	return fault.Err
}

func (h *memHandle) Stat() (fs.FileInfo, error) {
	h.dir.mu.Lock()
	defer h.dir.mu.Unlock()
	return memInfo{size: int64(len(h.file.data))}, nil
}

// memInfo is the size of a file.
type memInfo struct {
	fs.FileInfo
	size int64
}

func (i memInfo) Size() int64 { return i.size }

// OpenMemDir is OpenDir.
func OpenMemDir(d *MemDir, since time.Time) (*Dir, error) { return openDir(d, crand.Text(), since) }

// Coin returns a function that is random, for Reboot.
func Coin(seed uint64) func() bool {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func() bool { return rng.IntN(2) == 0 }
}

// CheckMemDir checks the log in d.
func CheckMemDir(ctx context.Context, d *MemDir, cfg CheckConfig) error { return check(ctx, d, cfg) }
