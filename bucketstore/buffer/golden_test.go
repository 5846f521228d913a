package buffer

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/golden"
)

// TestGolden pins the bytes of the files of a log, but for those of a segment.
func TestGolden(t *testing.T) {
	golden.Commands(t, map[string]func(*golden.Case){"synced": goldenSynced, "rows": goldenRows})
}

// goldenSynced writes the file synced: segment and size.
func goldenSynced(c *golden.Case) {
	for _, arg := range c.Args {
		p := position{uint64(c.Int(arg[1])), c.Int(arg[2]), arg[0] == "always"}
		slot := appendSynced(nil, p)
		c.Dump("slot", slot)
		if parsed, err := parseSynced(slot); parsed != p || err != nil {
			fmt.Fprintf(&c.Out, "parsed as %v, %v\n", parsed, err)
		}
	}
}

// goldenRows writes a row file of cells: table, key, family, qualifier, time and value.
func goldenRows(c *golden.Case) {
	tables := map[string]bucketstore.Table{"METRIC": bucketstore.Metric, "CURRENT": bucketstore.Current}
	var rows []*failingRow
	for _, arg := range c.Args {
		key := []byte(arg[2])
		if n := len(rows); n == 0 || !bytes.Equal(rows[n-1].Key, key) {
			rows = append(rows, &failingRow{FailingRow: bucketstore.FailingRow{Table: tables[arg[1]], Key: key}})
		}
		last := rows[len(rows)-1]
		last.ops = append(last.ops, bucketstore.Op{
			Kind: bucketstore.SetCell, Family: arg[3], Qualifier: []byte(arg[4]), Time: c.Int(arg[5]), Value: []byte(arg[6]),
		})
	}
	content, err := appendRowFile(nil, Binding{Store: "store", Schema: "0123456789abcdef"}, rows)
	c.Must(err)
	c.Out.WriteString(hex.Dump(content))
	parsed, err := parseRowFile(content)
	c.Must(err)
	if len(parsed) != len(rows) {
		c.Fatalf("parsed %d rows, want %d", len(parsed), len(rows))
	}
	for i := range rows {
		if !reflect.DeepEqual(parsed[i], *rows[i]) {
			c.Errorf("row %d is %v, want %v", i, parsed[i], *rows[i])
		}
	}
}

// FuzzParseRowFile parses anything behind good checksums.
func FuzzParseRowFile(f *testing.F) {
	f.Add([]byte("m\x01k\x01\x01c\x04quality\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		rows, err := parseRows(body)
		if err != nil {
			return
		}
		var again []byte
		for i := range rows {
			again = appendRow(again, &rows[i])
		}
		if got, err := parseRows(again); err != nil || !reflect.DeepEqual(got, rows) {
			t.Errorf("%v, %v; want %v", got, err, rows)
		}
	})
}
