package pebble_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// TestSchemaCopy: the copy is kept over a restart. Its bytes are part of the format. Each
// flipped bit in it is found.
func TestSchemaCopy(t *testing.T) {
	dir := t.TempDir()
	s, err := pebble.Open(onDisk(dir))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.ReadSchemaCopy(); err != nil || text != nil {
		t.Errorf("a new store: %q, %v", text, err)
	}
	cell := `{"format":1,"resource_labels":["` + strings.Repeat("x", 3000) + `"]}`
	for _, text := range []string{cell, `{"format":1}`} {
		if err := s.WriteSchemaCopy([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.ReadSchemaCopy(); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "SCHEMA")
	content, err := os.ReadFile(path)
	if golden := "promtable schema 1 0fb4e832\n{\"format\":1}\n"; err != nil || string(content) != golden {
		t.Errorf("the file is %q, want %q, %v", content, golden, err)
	}
	cfg := onDisk(dir)
	cfg.ReadOnly = true
	s = openStore(t, cfg)
	if got, err := s.ReadSchemaCopy(); err != nil || string(got) != `{"format":1}` {
		t.Errorf("after a restart: %q, %v", got, err)
	}
	for at := range content {
		damaged := []byte(string(content))
		damaged[at] ^= 1
		if err := os.WriteFile(path, damaged, 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := s.ReadSchemaCopy(); !errors.Is(err, series.ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Errorf("bit of byte %d: %q, %v", at, got, err)
		}
	}
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := s.ReadSchemaCopy(); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("an empty file: %q, %v", got, err)
	}
}
