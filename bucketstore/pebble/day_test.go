package pebble_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/series"
)

// Two bases in a row, of 2001. testBase lies in day 11,433.
const (
	testBase = "0987842478080"
	nextBase = "0992137445376"
)

// halfDay is in milliseconds.
const halfDay = 12 * 60 * 60 * 1000

// daysIn returns the qualifier of a time so many days and milliseconds after a base.
func daysIn(days int, millis uint32) []byte {
	return series.AppendQualifier(nil, uint32(2*days)*halfDay+millis)
}

// TestDays checks the days of stored cells.
func TestDays(t *testing.T) {
	const midnight = 302*2*halfDay - 25769803776
	for _, tc := range []struct {
		name string
		key  string
		qual string
		want uint32
	}{
		{"delta 0", "up," + testBase, "\x00\x00\x00\x00", 11433},
		{"some days later", "up," + testBase, string(daysIn(3, 1)), 11436},
		{"last delta", "up," + testBase, "\xff\xff\xff\xff", 11483},
		{"next base", "up," + nextBase, "\x00\x00\x00\x00", 11483},
		{"more than a delta", "up," + testBase, string(daysIn(3, 1)) + "\xff\xff\xff\xffabcd", 11436},
		{"no qualifier", "up," + testBase, "", 11433},
		{"less than a delta", "up," + testBase, "\xff\xff", 11483},
		{"1970", "up,0000000000000", "\x00\x00\x00\x00", 0},
		{"the second day", "up,0000000000000", string(daysIn(1, 0)), 1},
		{"before midnight", "up,0025769803776", string(series.AppendQualifier(nil, midnight-1)), 301},
		{"at midnight", "up,0025769803776", string(series.AppendQualifier(nil, midnight)), 302},
		{"last base", "up,9998683865088", "\xff\xff\xff\xff", 115775},
		{"labels", "up,instance=a:1,job=b," + testBase, "\x00\x00\x00\x00", 11433},
		{"no name", ",job=b," + testBase, "\x00\x00\x00\x00", 11433},
		{"tenant", "tenant,up,job=b," + testBase, "\x00\x00\x00\x00", 11433},
		{"resources", "up,job=b," + testBase + ",host,,pod", "\x00\x00\x00\x00", 11433},
		{"a resource like a base", "up,job=b," + testBase + "," + nextBase, "\x00\x00\x00\x00", 11433},
		{"a value like a base", "up,job=" + nextBase + "," + testBase, "\x00\x00\x00\x00", 11433},
		{"a value with a comma and a base", `up,job=\,` + nextBase + "," + testBase, "\x00\x00\x00\x00", 11433},
		{"a value that ends in backslashes", `up,job=\\\\,` + testBase, "\x00\x00\x00\x00", 11433},
		{"a name that ends in a backslash", `up\\,` + testBase, "\x00\x00\x00\x00", 11433},
		{"a value that ends in a backslash and a comma", `up,job=\\\,` + testBase, "\x00\x00\x00\x00", noDay},
		{"no base", "up,job=b", "\x00\x00\x00\x00", noDay},
		{"nothing but a base", testBase, "\x00\x00\x00\x00", noDay},
		{"comma at the end", "up,", "\x00\x00\x00\x00", noDay},
		{"12 digits", "up," + testBase[1:], "\x00\x00\x00\x00", noDay},
		{"14 digits", "up,0" + testBase, "\x00\x00\x00\x00", noDay},
		{"not a multiple of the period", "up,0987842478081", "\x00\x00\x00\x00", noDay},
		{"a label like a base", "up," + nextBase + "=x," + testBase, "\x00\x00\x00\x00", noDay},
		{"a label that begins with a digit", "up,5xx=1," + testBase, "\x00\x00\x00\x00", noDay},
		{"a tenant and a name that begins with a digit", "tenant,5xx," + testBase, "\x00\x00\x00\x00", noDay},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := vfs.NewMem()
			s, err := pebble.Open(onDisk("/data").WithFS(disk))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, s, bucketstore.Metric, tc.key, setOp("l", tc.qual, 1, ""))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("01%08x%x00016c00%x=0000000000000001", tc.want, tc.key, tc.qual)
			if got := storedPairs(t, disk); len(got) != 1 || got[0] != want {
				t.Errorf("stored\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// noDay is the day of cells without a base.
const noDay = 0xffffffff

// storedDays counts the cells of METRIC in each day on the disk.
func storedDays(t *testing.T, disk vfs.FS) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for _, pair := range storedPairs(t, disk) {
		if strings.HasPrefix(pair, "01") {
			found[pair[2:10]]++
		}
	}
	return found
}

// TestRowOverDays reads one row whose families lie in several days.
func TestRowOverDays(t *testing.T) {
	s := openStore(t, onDisk(t.TempDir()))
	const key = "up,job=b," + testBase
	q := func(days int) string { return string(daysIn(days, 0)) }
	apply(t, s, bucketstore.Metric, key,
		setOp("r1", q(2), 1, "8"), setOp("l", q(9), 1, "3"), setOp("r0", q(0), 1, "4"), setOp("l", q(1), 1, "1"),
		setOp("r0", q(0)+"x", 1, "5"), setOp("l", q(4), 1, "2"), setOp("r1", q(0), 1, "7"), setOp("r0", q(9), 1, "6"))
	apply(t, s, bucketstore.Metric, "up,job=b,"+nextBase, setOp("l", q(0), 1, "9"), setOp("r0", q(0), 1, "0"))
	apply(t, s, bucketstore.Metric, "up,job=a,"+testBase, setOp("l", q(5), 1, "beside"))
	base := func(start, limit string) series.RowRange {
		return series.RowRange{Start: []byte("up,job=b," + start), Limit: []byte("up,job=b," + limit)}
	}
	for _, tc := range []struct {
		name         string
		rows         series.RowRange
		start, limit string // of qualifiers
		want         string
	}{
		{"single row", series.SingleRow([]byte(key)), "", "", "12345678"},
		{"both bases", base(testBase, nextBase+"\x00"), "", "", "12345678 90"},
		{"first base", base(testBase, nextBase), "", "", "12345678"},
		{"range of names", series.PrefixRange([]byte("up,job=b")), "", "", "12345678 90"},
		{"three days of a row", series.SingleRow([]byte(key)), q(1), q(4), "18"},
		{"four days of a row", series.SingleRow([]byte(key)), q(1), q(4) + "\x00", "128"},
		{"the days of both bases", base(testBase, nextBase+"\x00"), q(2), q(4) + "\x00", "28"},
		{"the first day of both bases", base(testBase, nextBase+"\x00"), "", q(1), "457 90"},
		{"a day without cells", series.SingleRow([]byte(key)), q(5), q(9), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := allOf(bucketstore.Metric)
			req.Rows = []series.RowRange{tc.rows}
			for i := range req.Families {
				req.Families[i].Start, req.Families[i].Limit = []byte(tc.start), []byte(tc.limit)
			}
			var rows []string
			err := s.Scan(t.Context(), req, func(row bucketstore.Row) error {
				text := ""
				for _, c := range row.Cells {
					text += string(c.Value)
				}
				rows = append(rows, text)
				return nil
			})
			if got := strings.Join(rows, " "); err != nil || got != tc.want {
				t.Errorf("found %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

// TestManyDays reads rows over more days than a scan has iterators.
func TestManyDays(t *testing.T) {
	s := openStore(t, onDisk(t.TempDir()))
	const rows, bases = 5, 6
	var want []string
	for r := range rows {
		for b := range bases {
			key := fmt.Sprintf("up,job=%d,%013d", r, 987842478080+int64(b)*series.Period)
			text := fmt.Sprintf("%q", key)
			var ops []bucketstore.Op
			for d := range 49 {
				qual := string(daysIn(d, uint32(r)))
				ops = append(ops, setOp("l", qual, 1, ""))
				text += " " + hex.EncodeToString([]byte(qual))
			}
			apply(t, s, bucketstore.Metric, key, ops...)
			want = append(want, text)
		}
	}
	var ranges []series.RowRange
	for r := range rows {
		ranges = append(ranges, series.RowRange{
			Start: fmt.Appendf(nil, "up,job=%d,%013d", r, 987842478080), Limit: fmt.Appendf(nil, "up,job=%d,%013d\x00", r, 987842478080+(bases-1)*series.Period),
		})
	}
	for _, tc := range []struct {
		name string
		rows []series.RowRange
	}{
		{"a range for each series", ranges},
		{"one range", []series.RowRange{{}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := allOf(bucketstore.Metric)
			req.Rows = tc.rows
			var got []string
			err := s.Scan(t.Context(), req, func(row bucketstore.Row) error {
				text := fmt.Sprintf("%q", row.Key)
				for _, c := range row.Cells {
					text += " " + hex.EncodeToString(c.Qualifier)
				}
				got = append(got, text)
				return nil
			})
			if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("found %d rows, %v\n%s\nwant %d\n%s", len(got), err, strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
			}
		})
	}
}
