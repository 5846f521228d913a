package buffer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// Files in the directory of the log, beside it and the stamp.
const (
	lockName  = "lock"
	ownerName = "owner"
	idName    = "id"
)

// maxSmallFile bounds what is read of owner and id, in bytes.
const maxSmallFile = 1024

// takeDir locks a directory, which is there, and writes down who has it.
func takeDir(dir string, since time.Time) (fileutil.Releaser, error) {
	lock, _, err := fileutil.Flock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("the log in %s is held by another process, %s: %w", dir, readOwner(dir), err)
	}
	if err := writeFile(filepath.Join(dir, ownerName), describeOwner(since)); err != nil {
		return nil, errors.Join(fmt.Errorf("take the log in %s: %w", dir, err), lock.Release())
	}
	return lock, nil
}

// describeOwner says who we are, for the message of whoever wants the log as well.
func describeOwner(since time.Time) string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return fmt.Sprintf("pid %d on %s since %s", os.Getpid(), host, since.UTC().Format(time.RFC3339))
}

// readOwner returns what the holder of the log wrote about itself.
func readOwner(dir string) string {
	text, err := readFile(filepath.Join(dir, ownerName))
	if err != nil || text == "" {
		return "which has not said who it is"
	}
	return text
}

// takeID returns the name of the log, and gives it one if it has none.
func takeID(dir string) (string, error) {
	path := filepath.Join(dir, idName)
	id, err := readFile(path)
	if err == nil && id != "" || err != nil && !errors.Is(err, os.ErrNotExist) {
		return id, err
	}
	id = rand.Text()
	return id, writeFile(path, id)
}

// readFile returns the text of a small file without space around it.
func readFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSmallFile))
	return strings.TrimSpace(string(text)), errors.Join(err, file.Close())
}

// writeFile replaces a small file, durably and in one step.
func writeFile(path, text string) error {
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return fileutil.Rename(path+".new", path)
}

// makeDir makes a directory, if it is missing, with those above it, durably.
func makeDir(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(path string) error {
	dir, err := fileutil.OpenDir(path) // os.Open gives one that Windows cannot sync
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
