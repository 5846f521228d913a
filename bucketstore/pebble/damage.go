package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/series"
)

// checkFiles finds damage in the files that Pebble reads only when it opens. Pebble itself
// takes a damaged record of the manifest for its end, and so do its readers of logs within
// the last 32 KiB. Then it deletes what the lost records named.
func checkFiles(fs vfs.FS, dir string, opts *pebble.Options) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil || !desc.Exists {
		return err
	}
	if err := checkRecords(fs, desc.ManifestFilename, true); err != nil {
		return err
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".log") {
			if err := checkRecords(fs, fs.PathJoin(dir, name), false); err != nil {
				return err
			}
		}
	}
	if desc.OptionsFilename == "" {
		return nil
	}
	text, err := readFile(fs, desc.OptionsFilename)
	if err == nil {
		err = opts.CheckCompatibility(dir, string(text))
	}
	if err != nil {
		return fmt.Errorf("%w: %s is damaged, or of another program: %v; Pebble needs no such file, and makes a new one if it is removed",
			series.ErrCorrupt, desc.OptionsFilename, err)
	}
	return nil
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

// recordBlock is the size of the blocks of a file of records. No chunk of a record crosses
// the end of a block.
const recordBlock = 32 << 10

// checkRecords returns an ErrCorrupt if a file of records, Pebble's manifest or a log, has
// damage that a crash cannot have caused. After a crash the file may end with an unfinished
// write: a part of a record or zeros.
//
// Every record of the manifest is durable before the next is written. In a log, a chunk says
// up to which byte the log was durable when it was written.
func checkRecords(fs vfs.FS, name string, isManifest bool) error {
	content, err := readFile(fs, name)
	if err != nil {
		return err
	}
	bad := -1 // the first byte that begins no chunk
	for start := 0; start < len(content); start += recordBlock {
		block := content[start:min(start+recordBlock, len(content))]
		for at := 0; len(block)-at >= minChunkHead; {
			c, ok := parseChunk(block[at:])
			switch {
			case ok && bad >= 0 && (isManifest || c.durable > uint64(bad)):
				return fmt.Errorf("%w: %s is damaged at byte %d: a later write is whole", series.ErrCorrupt, name, bad)
			case ok:
				at += c.size
				continue
			case bad < 0 && !isPadding(block[at:]):
				bad = start + at
			}
			at++
		}
	}
	if isManifest && bad >= 0 && !isUnfinished(content[bad:]) {
		return fmt.Errorf("%w: %s is damaged at byte %d, in its last record", series.ErrCorrupt, name, bad)
	}
	return nil
}

// A recordChunk is a whole chunk of a record.
type recordChunk struct {
	size int
	// durable is how many bytes of the log were durable when it was written, if it says so.
	durable uint64
}

// Sizes of the heads of chunks: checksum 4 B, length 2 B, kind 1 B; in a log also its number
// 4 B, and how many bytes are durable 8 B. Integers are little-endian.
const (
	minChunkHead = 7
	maxChunkHead = 19
)

// parseChunk parses the chunk at the start of b, which ends with its block.
func parseChunk(b []byte) (c recordChunk, ok bool) {
	head := minChunkHead
	switch kind := b[6]; {
	case kind == 0 || kind > 12:
		return c, false
	case kind > 8:
		head = maxChunkHead
	case kind > 4:
		head = minChunkHead + 4
	}
	c.size = head + int(binary.LittleEndian.Uint16(b[4:]))
	if c.size > len(b) || binary.LittleEndian.Uint32(b) != recordChecksum(b[6:c.size]) {
		return c, false
	}
	if head == maxChunkHead {
		c.durable = binary.LittleEndian.Uint64(b[11:])
	}
	return c, true
}

// recordChecksum is the masked CRC-32C of LevelDB.
func recordChecksum(b []byte) uint32 {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// isPadding says whether rest, the end of a block, is too short for a chunk.
func isPadding(rest []byte) bool { return len(rest) < maxChunkHead && isZero(rest) }

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// isUnfinished says whether rest, the end of a manifest, may be an unfinished write: zeros,
// or a chunk that is longer. If the checksum fits, only the length is damaged.
func isUnfinished(rest []byte) bool {
	if len(rest) < minChunkHead || isZero(rest) {
		return true
	}
	size := minChunkHead + int(binary.LittleEndian.Uint16(rest[4:]))
	return size > len(rest) && binary.LittleEndian.Uint32(rest) != recordChecksum(rest[6:])
}
