package pebble

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/promtable/promtable/series"
)

// schemaFile holds a copy of META/schema, for a store whose tables are damaged:
//
//	promtable schema 1 CHECKSUM
//	the cell
//
// The checksum is the CRC-32C of the cell, in eight hexadecimal digits. The last byte is the
// end of the line.
const (
	schemaFile = "SCHEMA"
	schemaHead = "promtable schema 1 %08x"
	// maxSchemaCopy bounds what is read of the file, in bytes.
	maxSchemaCopy = 1 << 20
)

// ReadSchemaCopy returns the last WriteSchemaCopy, or nil if there was none. If the copy
// cannot be read, the error is an ErrCorrupt.
func (s *Store) ReadSchemaCopy() ([]byte, error) {
	path := s.fs.PathJoin(s.dir, schemaFile)
	file, err := s.fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %v", series.ErrCorrupt, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxSchemaCopy))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", series.ErrCorrupt, path, err)
	}
	head, cell, _ := strings.Cut(string(text), "\n")
	cell, isWhole := strings.CutSuffix(cell, "\n")
	if !isWhole || head != schemaCopyHead(cell) {
		return nil, fmt.Errorf("%w: %s is damaged, or of a later version", series.ErrCorrupt, path)
	}
	return []byte(cell), nil
}

// WriteSchemaCopy keeps a copy of the cell of META/schema in a file beside the tables. It
// returns when the copy is durable.
func (s *Store) WriteSchemaCopy(cell []byte) error {
	s.copying.Lock()
	defer s.copying.Unlock()
	return writeSmallFile(s.fs, s.dir, schemaFile, schemaCopyHead(string(cell))+"\n"+string(cell))
}

func schemaCopyHead(cell string) string {
	return fmt.Sprintf(schemaHead, crc32.Checksum([]byte(cell), crc32.MakeTable(crc32.Castagnoli)))
}
