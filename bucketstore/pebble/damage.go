package pebble

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/series"
)

// checkFiles finds damage in the files that Pebble reads only when it opens. Pebble itself
// takes a damaged record of the manifest for its end, and so do its readers of the newest log.
// Then it deletes what the lost records named.
func checkFiles(fs vfs.FS, dir string, opts *pebble.Options) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil || !desc.Exists {
		return err
	}
	minLog, err := checkManifest(fs, desc.ManifestFilename)
	if err != nil {
		return err
	}
	logs, err := listLogs(fs, dir)
	if err != nil {
		return err
	}
	logs = slices.DeleteFunc(logs, func(log uint64) bool { return log < minLog })
	if err := checkNeeded(fs, desc, minLog, logs); err != nil {
		return err
	}
	for i, log := range logs {
		if err := checkLog(fs, fs.PathJoin(dir, fmt.Sprintf("%06d.log", log)), log, i == len(logs)-1); err != nil {
			return err
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

// listLogs returns the numbers of the logs in dir, in ascending order.
func listLogs(fs vfs.FS, dir string) (logs []uint64, err error) {
	names, err := fs.List(dir)
	for _, name := range names {
		if number, isLog := strings.CutSuffix(name, ".log"); isLog {
			if n, err := strconv.ParseUint(number, 10, 64); err == nil {
				logs = append(logs, n)
			}
		}
	}
	slices.Sort(logs)
	return logs, err
}

// checkNeeded returns an ErrCorrupt if a log is missing that the version in the manifest needs:
// then a newer version, which needed it no longer, is lost. logs are those from minLog on.
//
// A start of Pebble makes a manifest, whose minLog is before the first log of the process, that
// log, and a file OPTIONS. Later flushes raise minLog to a log that is there. While a start is
// between its manifest and OPTIONS, nothing is known.
func checkNeeded(fs vfs.FS, desc *pebble.DBDesc, minLog uint64, logs []uint64) error {
	options, manifest := fileNumber(fs, desc.OptionsFilename), fileNumber(fs, desc.ManifestFilename)
	switch {
	case options < manifest:
		return nil
	case len(logs) > 0 && (logs[0] == minLog || minLog < options && logs[0] < options):
		return nil
	}
	return fmt.Errorf("%w: the log %06d.log, or the first one after it, is missing, which the version in %s needs: the log or the end of the manifest is lost; restore the snapshot",
		series.ErrCorrupt, minLog, desc.ManifestFilename)
}

// fileNumber returns the number at the end of a name as MANIFEST-000007, or 0.
func fileNumber(fs vfs.FS, path string) uint64 {
	_, number, _ := strings.Cut(fs.PathBase(path), "-")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
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

// checkManifest returns an ErrCorrupt if a manifest has damage that a crash cannot have caused,
// and else the number of the first log that its last version needs. After a crash it may end
// with an unfinished write: a part of a record or zeros. Every record is durable before the next
// is written, and the first two, a version and a change of it, before the manifest is used. Only
// the manifest of a new store begins with one.
func checkManifest(fs vfs.FS, name string) (minLog uint64, err error) {
	content, err := readFile(fs, name)
	if err != nil {
		return 0, err
	}
	const maxFront = 256
	var front []byte // of the record
	records := 0
	bad, err := scanRecords(content, 0, func(c recordChunk, bad int) error {
		if bad >= 0 {
			return fmt.Errorf("%w: %s is damaged at byte %d: a later write is whole", series.ErrCorrupt, name, bad)
		}
		if c.isFirst {
			front = front[:0]
		}
		front = append(front, c.payload[:min(len(c.payload), maxFront-len(front))]...)
		if c.isLast {
			minLog = max(minLog, minLogOf(front))
			records++
		}
		return nil
	})
	if err == nil && bad >= 0 && !isUnfinished(content[bad:]) {
		err = fmt.Errorf("%w: %s is damaged at byte %d, in its last record", series.ErrCorrupt, name, bad)
	}
	if err == nil && (records == 0 || records == 1 && fileNumber(fs, name) > 1) {
		err = fmt.Errorf("%w: %s is cut off after %d records; restore the snapshot", series.ErrCorrupt, name, records)
	}
	return minLog, err
}

// Fields of a record of the manifest, which begins with them: a number each, but for the name of
// the comparer.
const (
	comparerField = 1
	minLogField   = 2
	nextFileField = 3
	prevLogField  = 9
)

// minLogOf returns the number of the first log that is needed after a record of the manifest, or
// 0 if the record does not change it.
func minLogOf(record []byte) uint64 {
	for len(record) > 0 {
		field, n := binary.Uvarint(record)
		if n <= 0 || field != comparerField && field != minLogField && field != nextFileField && field != prevLogField {
			return 0
		}
		value, m := binary.Uvarint(record[n:])
		if m <= 0 {
			return 0
		}
		if field == minLogField {
			return value
		}
		if record = record[n+m:]; field == comparerField {
			record = record[min(value, uint64(len(record))):]
		}
	}
	return 0
}

// checkLog returns an ErrCorrupt if a log has damage that a crash cannot have caused. Pebble
// closes a log, durably, before it makes the next, so only the newest may end with an unfinished
// write. After a loss of power some parts of what was not synced may be there, and others not.
func checkLog(fs vfs.FS, name string, number uint64, isNewest bool) error {
	content, err := readFile(fs, name)
	if err != nil {
		return err
	}
	syncs := uint64(0) // how many times durable grew after the damage
	last, resumed := uint64(0), false
	bad, err := scanRecords(content, number, func(c recordChunk, bad int) error {
		if bad < 0 {
			return nil
		}
		if c.durable > last || !resumed {
			syncs++
		}
		// What was written before a chunk that says d1 is durable when a chunk says d3, with
		// d1 < d2 < d3: the sync of d3 began after that of d2 had ended. This finds more than
		// durable alone, which Pebble 2.1.7 takes for too small: it leaves out whole blocks.
		const enough = 3
		if c.durable > uint64(bad) || syncs >= enough || !resumed && !isTorn(content, bad, c.at) {
			return fmt.Errorf("%w: %s is damaged at byte %d: a later write, at byte %d, is whole; restore the snapshot", series.ErrCorrupt, name, bad, c.at)
		}
		last, resumed = max(last, c.durable), true
		return nil
	})
	if err == nil && !isNewest && !isClosed(content, bad, number) {
		err = fmt.Errorf("%w: %s is damaged or cut off at byte %d, and there is a later log; restore the snapshot", series.ErrCorrupt, name, max(bad, 0))
	}
	return err
}

// scanRecords calls visit with each whole chunk of a log of this number, or of a manifest if it is
// 0. bad is the first byte before it that begins no whole chunk, or -1.
func scanRecords(content []byte, log uint64, visit func(c recordChunk, bad int) error) (bad int, err error) {
	bad = -1
	for start := 0; start < len(content); start += recordBlock {
		block := content[start:min(start+recordBlock, len(content))]
		for at := 0; len(block)-at >= minChunkHead; {
			c, ok := parseChunk(block[at:], log)
			if ok {
				c.at = start + at
				if err := visit(c, bad); err != nil {
					return bad, err
				}
				at += c.size
				continue
			}
			if bad < 0 && !isPadding(block[at:]) {
				bad = start + at
			}
			at++
		}
	}
	return bad, nil
}

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// isTorn says whether content, in [from, limit), may be what a loss of power leaves of writes: a
// sector that was not written has zeros up to its end.
func isTorn(content []byte, from, limit int) bool {
	for start := from &^ (sector - 1); start+sector <= limit; start += sector {
		if isZero(content[max(start, from) : start+sector]) {
			return true
		}
	}
	return false
}

// isClosed says whether a log ends, at the byte at, with the mark of a closed one: the head of an
// empty chunk of the next number.
func isClosed(content []byte, at int, number uint64) bool {
	const size, kind = minChunkHead + 4, 5
	return at >= 0 && len(content)-at >= size && isZero(content[at:at+6]) && content[at+6] == kind &&
		binary.LittleEndian.Uint32(content[at+minChunkHead:]) == uint32(number+1)
}

// A recordChunk is a whole chunk of a record.
type recordChunk struct {
	at, size int
	payload  []byte
	// isFirst and isLast are set in the first and last chunk of a record.
	isFirst, isLast bool
	// durable is how many bytes of the log were durable when it was written, if it says so.
	durable uint64
}

// Sizes of the heads of chunks: checksum 4 B, length 2 B, kind 1 B; in a log also its number
// 4 B, and how many bytes are durable 8 B. Integers are little-endian.
const (
	minChunkHead = 7
	maxChunkHead = 19
)

// parseChunk parses the chunk at the start of b, which ends with its block. Kinds come in fours:
// a whole record, its first part, one between, the last. Those of a manifest, then those of logs
// without and with the number of durable bytes.
func parseChunk(b []byte, log uint64) (c recordChunk, ok bool) {
	head, kind := minChunkHead, b[6]
	if kind == 0 || kind > 12 || (kind > 4) != (log > 0) {
		return c, false
	}
	if kind > 8 {
		head = maxChunkHead
	} else if kind > 4 {
		head = minChunkHead + 4
	}
	c.size = head + int(binary.LittleEndian.Uint16(b[4:]))
	if c.size > len(b) || log > 0 && binary.LittleEndian.Uint32(b[minChunkHead:]) != uint32(log) || binary.LittleEndian.Uint32(b) != recordChecksum(b[6:c.size]) {
		return c, false
	}
	if head == maxChunkHead {
		c.durable = binary.LittleEndian.Uint64(b[11:])
	}
	c.payload, c.isFirst, c.isLast = b[head:c.size], kind%4 == 1 || kind%4 == 2, kind%4 == 1 || kind%4 == 0
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
