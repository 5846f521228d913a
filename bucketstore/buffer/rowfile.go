package buffer

import (
	"encoding/binary"
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cursor"
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

func rowFileName(n uint64) string { return numberedName(n, ".rows") }

// rowFilesIn returns the numbers of the row files in dir, ascending.
func rowFilesIn(dir durable.Dir) (numbers []uint64, err error) {
	return numbersIn(dir, ".rows", "a file of rows")
}

// writeRowFile writes a row file, durably.
func writeRowFile(dir dirState, n uint64, rows []*failingRow) error {
	content, err := appendRowFile(nil, dir.Binding, rows)
	if err != nil {
		return err
	}
	return durable.WriteFile(dir, rowFileName(n), content)
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
func readRowHeads(dir durable.Dir) (heads []segmentHead, err error) {
	numbers, err := rowFilesIn(dir)
	for _, n := range numbers {
		content, err := durable.ReadFile(dir, rowFileName(n))
		if err != nil {
			return nil, err
		}
		head, err := parseHead(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rowFileName(n), err)
		}
		head.segment, head.name = n, rowFileName(n)
		heads = append(heads, head)
	}
	return heads, err
}

// readRowFile returns the rows in a row file.
func readRowFile(dir durable.Dir, n uint64) (rows []failingRow, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("rows set aside in %s: %w", rowFileName(n), err)
		}
	}()
	content, err := durable.ReadFile(dir, rowFileName(n))
	if err != nil {
		return nil, err
	}
	return parseRowFile(content)
}

// parseRowFile returns the rows in the content of a row file, to which they refer.
func parseRowFile(content []byte) (rows []failingRow, err error) {
	if _, err := parseHead(content); err != nil {
		return nil, err
	}
	body, err := cutFrame(content[headSize:])
	if err != nil {
		return nil, err
	}
	if len(content) != headSize+frameHead+len(body) {
		return nil, errRecord("the end of the file")
	}
	return parseRows(body)
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
	p := cursor.Cursor{Rest: body}
	for len(p.Rest) > 0 && !p.Failed {
		table, ok := rowTables[p.Rest[0]]
		if !ok {
			return nil, errRecord("a table")
		}
		p.Rest = p.Rest[1:]
		row := failingRow{FailingRow: bucketstore.FailingRow{Table: table, Key: p.Sized()}}
		for n := p.Uvarint(); n > 0 && !p.Failed; n-- {
			op := bucketstore.Op{Kind: bucketstore.SetCell, Family: string(p.Sized()), Qualifier: p.Sized()}
			op.Time, op.Value = int64(p.Uvarint()), p.Sized()
			if op.Time < 0 || op.Time > series.MaxTime {
				return nil, errRecord("the time of a cell")
			}
			row.ops = append(row.ops, op)
		}
		rows = append(rows, row)
	}
	if p.Failed {
		return nil, errRecord("a row")
	}
	return rows, nil
}
