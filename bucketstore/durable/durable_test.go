package durable_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/bucketstore/durable"
)

// TestFiles: a file is replaced as a whole or not at all, and what was not finished is removed.
func TestFiles(t *testing.T) {
	dir := durable.OS(filepath.Join(t.TempDir(), "files"))
	failed := errors.New("failed")
	want := func(content string, names ...string) {
		t.Helper()
		got, err := durable.ReadFile(dir, "a")
		if err != nil || string(got) != content {
			t.Errorf("a holds %q, %v, want %q", got, err, content)
		}
		found, err := dir.Names()
		if slices.Sort(found); err != nil || !slices.Equal(found, names) {
			t.Errorf("there are %v, %v, want %v", found, err, names)
		}
	}
	for range 2 { // it may exist
		if err := dir.Make(); err != nil {
			t.Fatal(err)
		}
	}
	for _, content := range []string{"1", "1", "22", ""} {
		if err := durable.WriteFile(dir, "a", []byte(content)); err != nil {
			t.Fatal(err)
		}
		want(content, "a")
	}
	write := func(err error) func(io.Writer) error {
		return func(w io.Writer) error {
			_, writeErr := io.WriteString(w, "x")
			return errors.Join(writeErr, err)
		}
	}
	if err := durable.Create(dir, "a", os.O_EXCL, write(nil)); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second file of the name: %v", err)
	}
	if err := durable.Create(dir, "b", os.O_EXCL, write(failed)); !errors.Is(err, failed) {
		t.Errorf("a failed write: %v", err)
	}
	want("", "a")
	if err := durable.Create(dir, "b", os.O_EXCL, write(nil)); err != nil {
		t.Error(err)
	}
	want("", "a", "b")
	if err := durable.Remove(dir, "b", "missing"); err != nil {
		t.Error(err)
	}
	want("", "a")
}

// TestMake: a directory is not made where the one above is missing.
func TestMake(t *testing.T) {
	dir := durable.OS(filepath.Join(t.TempDir(), "mount", "files"))
	if err := dir.Make(); !errors.Is(err, durable.ErrNoParent) || !strings.Contains(err.Error(), string(dir)) {
		t.Errorf("%v", err)
	}
}

// TestLock: a file is locked once at a time.
func TestLock(t *testing.T) {
	dir := durable.OS(t.TempDir())
	for range 2 {
		unlock, err := dir.Lock("lock")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dir.Lock("lock"); err == nil {
			t.Error("it is locked twice")
		}
		if err := unlock(); err != nil {
			t.Fatal(err)
		}
	}
}
