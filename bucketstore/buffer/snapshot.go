package buffer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/promtable/promtable/bucketstore/durable"
)

// Snapshot copies the log to a directory, which must not exist, and calls store, which copies the store, meanwhile. Together both copies have every
// request that was answered before the call: the log is cut first, and what is cut off stays until it is copied, whatever the store
// takes. So the index rows of what the log has are in the copy of the store. Segments are hard links where the file system has them. ctx ends
// the wait for the log.
func (b *Buffer) Snapshot(ctx context.Context, dir string, store func() error) error {
	b.segments.removing.Lock()
	defer b.segments.removing.Unlock()
	to := durable.OS(dir)
	if err := os.Mkdir(dir, 0o750); err != nil {
		return err
	}
	var next uint64
	err := b.betweenCommits(ctx, func() (err error) {
		next, err = b.nextSegment()
		return err
	})
	if err != nil {
		return fmt.Errorf("begin a segment of the log: %w", err)
	}
	// A row file is removed when its rows are stored, so it is copied before the store is. Rows that are set aside later are in
	// segments, too.
	numbers, err := rowFilesIn(b.dir.state)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if err := b.copyTo(to, rowFileName(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := store(); err != nil {
		return err
	}
	if first := b.segments.first(); first > 0 {
		for segment := first; segment < next; segment++ {
			if err := b.copyTo(to, segmentName(segment)); err != nil {
				return err
			}
		}
	}
	// The store may have chunks of requests after the cut: later requests to the copy have later stamps.
	if err := b.betweenCommits(ctx, func() error { return writeStamp(b.dir.state, b.stamp) }); err != nil {
		return fmt.Errorf("write the stamp of the log: %w", err)
	}
	for _, name := range []string{stampName, identityName} {
		if err := b.copyTo(to, name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return to.Sync()
}

// copyTo makes a copy of a file that does not change any more: a link, or a copy of its content.
func (b *Buffer) copyTo(to durable.OS, name string) error {
	from := filepath.Join(b.dir.state.Path(), name)
	err := os.Link(from, to.Join(name))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	err = durable.Create(to, name, os.O_EXCL, func(w io.Writer) error {
		_, err := io.Copy(w, src)
		return err
	})
	return errors.Join(err, src.Close())
}
