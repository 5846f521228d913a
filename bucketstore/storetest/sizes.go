package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	seriescell "github.com/promtable/promtable/series/cell"
)

func sizeChecks() []check {
	return []check{
		{"a batch of many rows", checkManyRows},
		{"a row of many cells", checkWideRow},
		{"values of 1 MiB", checkBigValues},
		{"long qualifiers", checkLongQualifiers},
	}
}

func checkManyRows(f fixture) {
	const rows = 12000
	muts := manyRows(rows)
	rand.New(rand.NewPCG(1, 2)).Shuffle(rows, func(i, j int) { muts[i], muts[j] = muts[j], muts[i] })
	f.apply(bucketstore.Index, muts...)
	i := 0
	err := f.store.Scan(f.ctx, everything(bucketstore.Index), func(r bucketstore.Row) error {
		want := fmt.Sprintf("row %06d", i)
		if string(r.Key) != want || len(r.Cells) != 1 || string(r.Cells[0].Value) != want {
			return fmt.Errorf("row %d is %s", i, format([]bucketstore.Row{r}))
		}
		i++
		return nil
	})
	if err != nil || i != rows {
		f.Fatalf("Scan found %d of %d rows: %v", i, rows, err)
	}
}

func checkWideRow(f fixture) {
	const columns = 4500 // The Bigtable emulator is quadratic in these.
	qual := func(i int) []byte { return series.AppendQualifier(nil, uint32(i)*15000) }
	m := bucketstore.Mutation{Key: []byte("row")}
	for i := range columns {
		m.Ops = append(m.Ops, bucketstore.Op{Family: "l", Qualifier: qual(i), Time: int64(i), Value: seriescell.AppendFloat(nil, float64(i))})
	}
	f.apply(bucketstore.Metric, m)
	rows := f.scan(everything(bucketstore.Metric))
	if len(rows) != 1 || len(rows[0].Cells) != columns {
		f.Fatalf("Scan found %d rows, want 1 of %d cells", len(rows), columns)
	}
	for i, c := range rows[0].Cells {
		if v, err := seriescell.ParseFloat(c.Value); err != nil || !bytes.Equal(c.Qualifier, qual(i)) || c.Time != int64(i) || v != float64(i) {
			f.Fatalf("cell %d is %x@%d=%x", i, c.Qualifier, c.Time, c.Value)
		}
	}
	req := everything(bucketstore.Metric)
	req.Families = []bucketstore.FamilyRange{{Family: "l", Start: qual(1000), Limit: qual(1003)}}
	rows = f.scan(req)
	if len(rows) != 1 || len(rows[0].Cells) != 3 || !bytes.Equal(rows[0].Cells[0].Qualifier, qual(1000)) {
		f.Fatalf("Scan of three cells found\n%s", format(rows))
	}
}

// checkBigValues: more bytes than fit one message or one memory table.
func checkBigValues(f fixture) {
	const size, rows = 1 << 20, 6
	random := rand.NewChaCha8([32]byte{1})
	values := make([]string, rows)
	var muts []bucketstore.Mutation
	for i := range values {
		b := make([]byte, size)
		random.Read(b) // It never fails.
		values[i] = string(b)
		muts = append(muts, mutate(fmt.Sprintf("row %d", i), set("r0", "a", 1, values[i]), set("r0", "b", 1, "small")))
	}
	f.apply(bucketstore.Metric, muts...)
	got := f.scan(everything(bucketstore.Metric))
	if len(got) != rows {
		f.Fatalf("Scan found %d of %d rows", len(got), rows)
	}
	for i, r := range got {
		if len(r.Cells) != 2 || string(r.Cells[0].Value) != values[i] || string(r.Cells[1].Value) != "small" {
			f.Fatalf("row %d came back changed", i)
		}
	}
}

func checkLongQualifiers(f fixture) {
	const longest = 16 << 10
	a, b := strings.Repeat("\x00", longest), strings.Repeat("\xff", longest)
	f.apply(bucketstore.Metric, mutate("row", set("r0", b, 1, "2"), set("r0", a, 1, "1")))
	f.wantTable(bucketstore.Metric, row("row", cell("r0", a, 1, "1"), cell("r0", b, 1, "2")))
}
