package buffer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

// CheckConfig says how the directory of a log is checked. Report and Progress are required.
type CheckConfig struct {
	// Repair repairs what Check finds: see Finding.Repair. Without it no file changes.
	Repair bool
	// Report is called with everything that keeps a start from replaying the log, when it
	// is found, or repaired.
	Report func(bucketstore.Finding)
	// Note is called with what an operator should know, and a start takes care of.
	Note func(where, what string)
	// Progress is called with the bytes that were read since the last call.
	Progress func(bytes int64)
}

// Check reads all that a start reads in the directory of a log. A directory that does not
// exist has no log. If a process uses the log, the error names it. On a read-only file system
// the log is checked without a lock, and not repaired.
func Check(ctx context.Context, path string, cfg CheckConfig) error {
	return check(ctx, durable.OS(path), cfg)
}

func check(ctx context.Context, dir durable.Dir, cfg CheckConfig) (err error) {
	names, err := dir.Names()
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkContent(dir); err != nil {
		return err
	}
	if cfg.Repair || slices.Contains(names, lockName) { // else no process has used it
		unlock, lockErr := dir.Lock(lockName)
		switch {
		case lockErr == nil:
			defer func() { err = errors.Join(err, unlock()) }()
		case errors.Is(lockErr, syscall.EROFS) && !cfg.Repair: // the lock needs a file that can be written to
			cfg.Note(dir.Path(), "it is on a read-only file system, and is checked without a lock: no adapter may use it through another mount")
		default:
			return describeLockError(dir, lockErr)
		}
	}
	c := logCheck{ctx: ctx, dir: dir, CheckConfig: cfg}
	if err := c.smallFiles(); err != nil {
		return err
	}
	if err := errors.Join(c.segments(), c.writeStamp()); err != nil {
		return fmt.Errorf("the log in %s: %w", dir.Path(), err)
	}
	return c.rowFiles()
}

// CheckBinding checks that the log in a directory belongs to the store, and that the store
// waits for no other, as a start does.
func (t Terms) CheckBinding(ctx context.Context, path string) error {
	state, err := readDir(durable.OS(path))
	if err != nil {
		return err
	}
	logs, err := t.Store.Logs(ctx)
	if err != nil {
		return err
	}
	if _, err = t.check(&state, logs); err == nil {
		_, err = t.checkAge(ctx, &state, logs)
	}
	return err
}

// A logCheck is a check of a directory.
type logCheck struct {
	ctx context.Context
	dir durable.Dir
	CheckConfig
	binding Binding
	synced  position
	// cutOff says that a repair has removed requests from the log.
	cutOff bool
	// damaged is the last segment with a damaged frame.
	damaged uint64
}

func (c *logCheck) where(name string) string { return filepath.Join(c.dir.Path(), name) }

// found reports what is wrong with a file, after its repair if that is asked for.
func (c *logCheck) found(name string, what error, repair string, do func() error) error {
	f := bucketstore.Finding{Where: c.where(name), What: what.Error(), Repair: repair}
	if c.Repair && repair != "" {
		if err := do(); err != nil {
			return fmt.Errorf("repair %s: %w", f.Where, err)
		}
		f.Repaired = true
	}
	c.Report(f)
	return nil
}

// setAside reports a file that the log can do without. The repair renames it.
func (c *logCheck) setAside(name string, what error, lost string) error {
	to, err := c.freeName(name)
	if err != nil {
		return err
	}
	return c.found(name, what, fmt.Sprintf("rename it to %s; %s", to, lost), func() error {
		return errors.Join(c.dir.Rename(name, to), c.dir.Sync())
	})
}

// freeName returns a name for what is damaged of a file.
func (c *logCheck) freeName(name string) (string, error) {
	names, err := c.dir.Names()
	free := name + damagedSuffix
	for n := 2; slices.Contains(names, free); n++ {
		free = fmt.Sprintf("%s%s-%d", name, damagedSuffix, n)
	}
	return free, err
}

// smallFiles checks the files beside the segments.
func (c *logCheck) smallFiles() error {
	identity, err := readIdentity(c.dir)
	c.binding = identity.Binding
	for _, file := range []struct {
		name, lost string
		err        error
	}{
		{identityName, "the next start names the ID of the log, and replays it with --buffer.discard-lost-log=ID", err},
		{stampName, "then only the clock orders new writes after those of the last log", errOf(readStamp(c.dir))},
	} {
		switch {
		case errors.Is(file.err, series.ErrCorrupt):
			err = c.setAside(file.name, file.err, file.lost)
		default:
			err = file.err
		}
		if err != nil {
			return err
		}
	}
	c.synced, err = readSynced(c.dir)
	return err
}

func errOf[T any](_ T, err error) error { return err }

// segments checks the segments, and that none is missing.
func (c *logCheck) segments() error {
	numbers, err := segmentsIn(c.dir)
	if err != nil || len(numbers) == 0 && c.synced.segment == 0 {
		return err
	}
	if c.binding == (Binding{}) {
		if c.binding, err = c.bindingOfHeads(numbers); err != nil {
			return err
		}
	}
	next := c.synced.segment // that is expected
	if len(numbers) > 0 {
		next = numbers[0]
	}
	for _, n := range numbers {
		if n > next {
			if err := c.missing(next, n); err != nil {
				return err
			}
		}
		isLast := n == max(numbers[len(numbers)-1], c.synced.segment)
		if err := c.segment(n, isLast); err != nil {
			return fmt.Errorf("segment %s: %w", segmentName(n), err)
		}
		next = n + 1
	}
	if len(numbers) == 0 || c.synced.segment > numbers[len(numbers)-1] {
		if err := c.missing(next, c.synced.segment+1); err != nil {
			return err
		}
		return c.lessThanSynced(0)
	}
	return nil
}

// lessThanSynced reports that only so many bytes of what was synced are there.
func (c *logCheck) lessThanSynced(whole int64) error {
	what := fmt.Errorf("it says that %d bytes of segment %s were synced; %d of them are whole", c.synced.size, segmentName(c.synced.segment), whole)
	c.cutOff = c.cutOff || c.Repair
	return c.setAside(syncedName, what, fmt.Sprintf("the samples in the other %d bytes are lost", c.synced.size-whole))
}

// bindingOfHeads returns the binding in the heads of segments, for a directory without an
// identity. It is zero if no head can be read, or if two of them differ.
func (c *logCheck) bindingOfHeads(segments []uint64) (b Binding, err error) {
	for _, n := range segments {
		head, err := readHead(c.dir, n)
		switch {
		case errors.Is(err, series.ErrCorrupt):
			continue
		case err != nil:
			return Binding{}, fmt.Errorf("segment %s: %w", segmentName(n), err)
		case head.blank:
			continue
		case b != (Binding{}) && head.Binding != b:
			return Binding{}, nil
		}
		b = head.Binding
	}
	return b, nil
}

// maxMissing bounds the empty segments that a repair puts into a gap. In a greater gap one
// of the segments around it may be a stray file.
const maxMissing = 1000

// missing reports that there are no segments with numbers in [first, limit).
func (c *logCheck) missing(first, limit uint64) error {
	what := fmt.Errorf("%w: the segment is missing", series.ErrCorrupt)
	repair := "put an empty one in its place; the samples in it are lost"
	if n := limit - first; n > 1 {
		what = fmt.Errorf("%w: %d segments are missing, up to %s", series.ErrCorrupt, n, segmentName(limit-1))
		repair = fmt.Sprintf("put %d empty ones in their place; the samples in them are lost", n)
	}
	switch {
	case limit-first > maxMissing:
		what, repair = fmt.Errorf("%w; %s may be a stray file", what, segmentName(limit)), ""
	case c.binding == (Binding{}):
		what, repair = c.ofNoStore(what), ""
	}
	return c.found(segmentName(first), what, repair, func() error {
		c.cutOff = true
		head, err := appendHead(nil, c.binding, 0)
		for n := first; n < limit && err == nil; n++ {
			err = c.create(segmentName(n), bytes.NewReader(head))
		}
		return errors.Join(err, c.record(limit-1, int64(headSize)))
	})
}

// nextHead returns the head of the segment after n. It is zero if that is missing or damaged.
func (c *logCheck) nextHead(n uint64) (segmentHead, error) {
	head, err := readHead(c.dir, n+1)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, series.ErrCorrupt) {
		return segmentHead{}, nil
	}
	return head, err
}

// record lets the head of the next segment say that a segment has this size, which a repair has changed.
func (c *logCheck) record(n uint64, size int64) error {
	next, err := c.nextHead(n)
	if err != nil || next.previous == 0 || next.previous == size {
		return err
	}
	head, nextErr := appendHead(nil, next.Binding, size)
	to, nameErr := c.freeName(segmentName(n + 1))
	if err := errors.Join(nextErr, nameErr); err != nil {
		return err
	}
	return c.replaceHead(segmentName(n+1), head, to)
}

// replaceHead writes the head of a segment again, and keeps what was there in a file beside it.
func (c *logCheck) replaceHead(name string, head []byte, to string) error {
	f, err := c.dir.Open(name, os.O_RDWR)
	if err != nil {
		return err
	}
	old := make([]byte, len(head))
	n, err := f.ReadAt(old, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil {
		err = c.create(to, bytes.NewReader(old[:n]))
	}
	if err == nil {
		_, err = f.WriteAt(head, 0)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// ofNoStore adds to what is wrong why a head cannot be written.
func (c *logCheck) ofNoStore(what error) error {
	return fmt.Errorf("%w, and neither %s nor another segment says which store the log belongs to", what, identityName)
}

// create makes a file with this content, durably.
func (c *logCheck) create(name string, content io.Reader) error {
	err := durable.Create(c.dir, name, os.O_EXCL, func(w io.Writer) error {
		_, err := io.Copy(w, content)
		return err
	})
	return errors.Join(err, c.dir.Sync())
}

// segment checks a segment, and that it has all bytes that were there when it was synced last.
func (c *logCheck) segment(n uint64, isLast bool) (err error) {
	file, err := openSegment(c.dir, n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	next, err := c.nextHead(n)
	if err != nil {
		return err
	}
	size, recorded := file.size, next.previous // 0 if that is not known
	head, err := file.start()
	switch isCorrupt := errors.Is(err, series.ErrCorrupt); {
	case head.blank && isLast:
		if n == c.synced.segment {
			return c.lessThanSynced(0)
		}
		c.Note(c.where(segmentName(n)), "nothing is in it; the next start removes it")
		return nil
	case head.blank:
		if err := c.badHead(file, head.version, fmt.Errorf("%w: nothing is in it", series.ErrCorrupt), blankLost(size, recorded)); err != nil {
			return err
		}
		size = recorded // all is said
	case isCorrupt:
		if err := c.badHead(file, head.version, err, c.headLost(file)); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if err := c.frames(file, isLast); err != nil {
		return err
	}
	return c.sizes(file, size, recorded)
}

// blankLost says what is lost of a segment without a frame that has this size, and had the other one when the next was begun.
func blankLost(size, recorded int64) string {
	switch recorded {
	case 0:
		return "the samples that were in it are lost"
	case int64(headSize):
		return "nothing is lost, no sample was in it"
	}
	return fmt.Sprintf("the samples in it are lost: it had %d bytes, and has %d", recorded, size)
}

// headLost says what is lost with the damaged head of a segment.
func (c *logCheck) headLost(file *segmentFile) string {
	src := make([]byte, headSize)
	before, err := openSegment(c.dir, file.segment-1)
	if err != nil { // it is the first one
		return "nothing is lost"
	}
	defer before.close()
	if _, err := file.file.ReadAt(src, 0); err == nil && int64(binary.LittleEndian.Uint64(src[previousAt:])) == before.size {
		return "nothing is lost"
	}
	return fmt.Sprintf("whether %s has all its bytes is not known any more", segmentName(file.segment-1))
}

// sizes compares the size of a segment with what was recorded of it. What a repair has cut off is recorded.
func (c *logCheck) sizes(file *segmentFile, size, recorded int64) error {
	n := file.segment
	if recorded > 0 && size != recorded && c.damaged != n {
		what := fmt.Errorf("%w: it has %d bytes, and had %d when the next one was begun", series.ErrCorrupt, size, recorded)
		repair := fmt.Sprintf("let %s say %d; the samples in the other %d bytes are lost", segmentName(n+1), size, recorded-size)
		if err := c.found(segmentName(n), what, repair, func() error { return nil }); err != nil {
			return err
		}
	}
	if c.Repair && recorded > 0 && file.at != recorded {
		if err := c.record(n, file.at); err != nil {
			return err
		}
	}
	if n == c.synced.segment && file.at < c.synced.size {
		return c.lessThanSynced(file.at)
	}
	return nil
}

// frames checks the frames of a segment, up to the first that a replay refuses.
func (c *logCheck) frames(file *segmentFile, isLast bool) error {
	one := &ref{} // stands for all series
	reader := segmentReader{ref: func(string) *ref { return one }}
	ignore := func([]bucketstore.Sample, int64) error { return c.ctx.Err() }
	for !file.atEnd() {
		at := file.at
		body, err := file.frame()
		if isLast && errors.Is(err, series.ErrCorrupt) {
			why, searchErr := whyUnfinished(file, c.synced)
			if searchErr != nil {
				return searchErr
			}
			if why != "" {
				c.Note(c.where(segmentName(file.segment)), fmt.Sprintf("%s; the next start cuts off %d bytes, from byte %d on", why, file.size-at, at))
				return nil
			}
		}
		if err == nil {
			err = reader.frame(body, ignore)
		}
		if errors.Is(err, series.ErrCorrupt) {
			file.skipTo(at)
			return c.cut(file, err)
		}
		if err != nil {
			return err
		}
		c.Progress(file.at - at)
	}
	return nil
}

// headOf returns the head that a segment had. version is the number in the damaged one. The head is nil if the store is not known, or if
// another version may have written the segment: no frame begins where this version has the first one.
func (c *logCheck) headOf(file *segmentFile, version byte) ([]byte, error) {
	src, err := file.peek(int64(headSize + frameHead))
	if err != nil {
		return nil, err
	}
	_, isOurs := bodySize(src[min(headSize, len(src)):])
	isOurs = isOurs || version == headVersion || version == 0 || file.size == int64(headSize)
	if c.binding == (Binding{}) || !isOurs {
		return nil, nil
	}
	var before int64
	if previous, err := openSegment(c.dir, file.segment-1); err == nil {
		before = previous.size
		previous.close()
	}
	return appendHead(nil, c.binding, before)
}

// badHead reports a damaged head, which the repair writes again, and what is lost with it. Then the frames follow. If
// the head is not known they are left alone.
func (c *logCheck) badHead(file *segmentFile, version byte, what error, lost string) error {
	name := segmentName(file.segment)
	head, err := c.headOf(file, version)
	if err != nil {
		return err
	}
	if head == nil {
		file.skipTo(file.size)
		if c.binding == (Binding{}) {
			what = c.ofNoStore(what)
		}
		return c.found(name, what, "", nil)
	}
	to, err := c.freeName(name)
	if err != nil {
		return err
	}
	old := min(int64(len(head)), file.size)
	err = c.found(name, what, fmt.Sprintf("copy its first %d bytes to %s, and write the head again; %s", old, to, lost), func() error {
		file.size = max(file.size, int64(len(head)))
		return c.replaceHead(name, head, to)
	})
	file.skipTo(min(int64(len(head)), file.size))
	return err
}

// cut reports damage at the position of a segment, after which nothing in it can be read:
// frames refer to those before. The repair moves the rest to a file.
func (c *logCheck) cut(file *segmentFile, what error) error {
	c.damaged = file.segment
	name, size := segmentName(file.segment), file.size-file.at
	to, err := c.freeName(name)
	if err != nil {
		return err
	}
	what = fmt.Errorf("at byte %d of %d: %w", file.at, file.size, what)
	return c.found(name, what, fmt.Sprintf("move the last %d bytes to %s; the samples in them are lost", size, to), func() error {
		if err := c.create(to, io.NewSectionReader(file.file, file.at, size)); err != nil {
			return err
		}
		c.cutOff = true
		return file.cutOff(c.dir)
	})
}

// writeStamp makes the log as late as it was, after a repair has cut off requests: the store may know them.
func (c *logCheck) writeStamp() error {
	if !c.cutOff {
		return nil
	}
	stamp, err := readStamp(c.dir)
	if err != nil {
		return err
	}
	return writeStamp(c.dir, max(stamp, time.Now().UnixMilli()))
}

// rowFiles lists the rows that were set aside, and checks their files.
func (c *logCheck) rowFiles() error {
	numbers, err := rowFilesIn(c.dir)
	for _, n := range numbers {
		rows, err := readRowFile(c.dir, n)
		switch {
		case errors.Is(err, series.ErrCorrupt):
			err = c.setAside(rowFileName(n), err, "the samples of its rows are lost")
		case err == nil:
			for i := range rows {
				row := &rows[i]
				c.Note(c.where(rowFileName(n)), fmt.Sprintf("row %q of %s waits here, with %d cells and %d bytes: the store did not take it; the next start tries again, and /api/v1/status/adapter says why it fails",
					row.Key, row.Table, len(row.ops), row.size()))
			}
		}
		if err != nil {
			return err
		}
	}
	return err
}
