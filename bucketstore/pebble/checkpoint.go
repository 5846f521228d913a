package pebble

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Checkpoint writes a copy of the store, as it is now, to a directory, which must not exist. Tables are hard links
// where the file system has them. All that was written before the call is in the copy, durably; it opens as the store
// would after a loss of power. After an error a part of it may be there. The store stays in use. One call may run at a time.
func (s *Store) Checkpoint(dir string) error {
	// Pebble takes its tables first and its log last: a table that is ingested between would be in neither, and a write after it in the log.
	s.checkpointing.Store(true)
	defer s.checkpointing.Store(false)
	s.ingesting.Lock()
	s.ingesting.Unlock() // those that began before have ended
	err := s.db.Checkpoint(dir, pebble.WithFlushedWAL())
	if err == nil {
		err = s.copySchema(dir)
	}
	if err == nil { // last: without it this is no data directory
		err = writeSmallFile(s.fs, dir, formatFile, format)
	}
	if err != nil {
		return fmt.Errorf("copy the store to %q: %w", dir, err)
	}
	return nil
}

// copySchema copies the copy of META/schema, if there is one.
func (s *Store) copySchema(dir string) error {
	s.copying.Lock()
	defer s.copying.Unlock()
	err := vfs.Copy(s.fs, s.fs.PathJoin(s.dir, schemaFile), s.fs.PathJoin(dir, schemaFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
