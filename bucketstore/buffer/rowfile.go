package buffer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A row file holds rows that the store did not take. It is written once, and removed when
// all of them are stored:
//
//	file  = head of a segment | frame
//	body  = { row }
//	row   = table byte, 'm' for METRIC and 'c' for CURRENT | key | cells uvarint | { cell }
//	cell  = family | qualifier | time uvarint, in milliseconds | value
//	key, family, qualifier, value = length uvarint | bytes
type rowFile struct {
	number uint64
	// rows counts those that are not stored. It is guarded by retryQueue.mu.
	rows int
}

// rowTables are the tables whose rows can be set aside, by the byte for them.
var rowTables = map[byte]bucketstore.Table{'m': bucketstore.Metric, 'c': bucketstore.Current}

const rowFileSuffix = ".rows"

func rowFileName(n uint64) string { return fmt.Sprintf("%016d%s", n, rowFileSuffix) }

// rowFilesIn returns the numbers of the row files in dir, ascending.
func rowFilesIn(dir directory) (numbers []uint64, err error) {
	names, err := dir.names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, rowFileSuffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || rowFileName(n) != name {
			return nil, fmt.Errorf("%s is not the name of a file of rows", name)
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// writeRowFile writes a row file, durably.
func writeRowFile(dir dirState, n uint64, rows []*failingRow) error {
	content, err := appendRowFile(nil, dir.Binding, rows)
	if err != nil {
		return err
	}
	return writeFile(dir, rowFileName(n), string(content))
}

// appendRowFile appends the content of a row file.
func appendRowFile(dst []byte, binding Binding, rows []*failingRow) ([]byte, error) {
	dst, err := appendHead(dst, binding, 0)
	if err != nil {
		return nil, err
	}
	start := len(dst)
	dst = append(dst, make([]byte, frameHead)...)
	for _, row := range rows {
		dst = appendRow(dst, row)
	}
	putFrameHead(dst[start:])
	return dst, nil
}

// readRowHeads returns the heads of the row files in dir.
func readRowHeads(dir directory) (heads []segmentHead, err error) {
	numbers, err := rowFilesIn(dir)
	for _, n := range numbers {
		content, err := readRowContent(dir, n)
		if err != nil {
			return nil, err
		}
		head, _, err := parseHead(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rowFileName(n), err)
		}
		head.segment = n
		heads = append(heads, head)
	}
	return heads, err
}

// readRowFile returns the rows in a row file.
func readRowFile(dir directory, n uint64) (rows []failingRow, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rows set aside in %s: %w", rowFileName(n), err)
		}
	}()
	content, err := readRowContent(dir, n)
	if err != nil {
		return nil, err
	}
	return parseRowFile(content)
}

// parseRowFile returns the rows in the content of a row file, to which they refer.
func parseRowFile(content []byte) (rows []failingRow, err error) {
	_, size, err := parseHead(content)
	if err != nil {
		return nil, err
	}
	body, err := cutFrame(content[size:])
	if err != nil {
		return nil, err
	}
	if len(content) != size+frameHead+len(body) {
		return nil, errRecord("the end of the file")
	}
	return parseRows(body)
}

func readRowContent(dir directory, n uint64) (content []byte, err error) {
	file, err := dir.open(rowFileName(n), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		content, err = io.ReadAll(io.NewSectionReader(file, 0, info.Size()))
	}
	return content, errors.Join(err, file.Close())
}

// appendRow appends a row to the body of a row file.
func appendRow(dst []byte, row *failingRow) []byte {
	for letter, table := range rowTables {
		if table == row.Table {
			dst = append(dst, letter)
		}
	}
	dst = appendSized(dst, row.Key)
	dst = binary.AppendUvarint(dst, uint64(len(row.ops)))
	for _, op := range row.ops {
		dst = appendSized(appendSized(dst, []byte(op.Family)), op.Qualifier)
		dst = binary.AppendUvarint(dst, uint64(op.Time))
		dst = appendSized(dst, op.Value)
	}
	return dst
}

func appendSized(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// parseRows parses the body of a row file. The rows refer to body.
func parseRows(body []byte) (rows []failingRow, err error) {
	p := rowParser{rest: body}
	for len(p.rest) > 0 && !p.bad {
		table, ok := rowTables[p.rest[0]]
		if !ok {
			return nil, errRecord("a table")
		}
		p.rest = p.rest[1:]
		row := failingRow{FailingRow: bucketstore.FailingRow{Table: table, Key: p.sized()}}
		for n := p.uvarint(); n > 0 && !p.bad; n-- {
			op := bucketstore.Op{Kind: bucketstore.SetCell, Family: string(p.sized()), Qualifier: p.sized()}
			op.Time, op.Value = int64(p.uvarint()), p.sized()
			if op.Time < 0 || op.Time > series.MaxTime {
				return nil, errRecord("the time of a cell")
			}
			row.ops = append(row.ops, op)
		}
		rows = append(rows, row)
	}
	if p.bad {
		return nil, errRecord("a row")
	}
	return rows, nil
}

// A rowParser cuts fields from the front of rest. It is bad once one is malformed.
type rowParser struct {
	rest []byte
	bad  bool
}

func (p *rowParser) uvarint() uint64 {
	v, n := binary.Uvarint(p.rest)
	if p.bad = p.bad || n <= 0; p.bad {
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

func (p *rowParser) sized() []byte {
	size := p.uvarint()
	if p.bad = p.bad || size > uint64(len(p.rest)); p.bad {
		return nil
	}
	b := p.rest[:size:size]
	p.rest = p.rest[size:]
	return b
}
