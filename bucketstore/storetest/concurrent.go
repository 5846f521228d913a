package storetest

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

func concurrentChecks() []check {
	return []check{
		{"one of many conditions holds", checkOneWinner},
		{"a counter by conditions", checkCounter},
		{"a row is seen as of one instant", checkAtomicRow},
		{"greatest time wins between writers", checkConcurrentTimes},
		{"delete before does not delete what is newer", checkConcurrentDelete},
		{"sums of many writers", checkConcurrentSums},
	}
}

// together runs do in n goroutines and ends the test on the first error.
func (f fixture) together(n int, do func(i int) error) {
	f.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			f.Fatal(err)
		}
	}
}

func checkOneWinner(f fixture) {
	const contenders, rounds = 8, 20
	for round := range rounds {
		key := fmt.Sprintf("lease %d", round)
		won := make([]bool, contenders)
		f.together(contenders, func(i int) (err error) {
			won[i], err = f.store.CheckAndApply(f.ctx, bucketstore.Meta, absent("m", "v"), mutate(key, set("m", "v", 1, strconv.Itoa(i))))
			return err
		})
		winner := -1
		for i, w := range won {
			if w && winner >= 0 {
				f.Fatalf("%d and %d both won", winner, i)
			}
			if w {
				winner = i
			}
		}
		if winner < 0 {
			f.Fatal("no writer won")
		}
		req := everything(bucketstore.Meta)
		req.Rows[0] = series.SingleRow([]byte(key))
		f.wantScan(req, row(key, cell("m", "v", 1, strconv.Itoa(winner))))
	}
}

// readNumber returns the number in META/counter.
func (f fixture) readNumber() (n int, err error) {
	err = f.store.Scan(f.ctx, everything(bucketstore.Meta), func(r bucketstore.Row) (err error) {
		n, err = strconv.Atoi(string(r.Cells[0].Value))
		return err
	})
	return n, err
}

func checkCounter(f fixture) {
	const counters, each = 4, 25
	f.apply(bucketstore.Meta, mutate("counter", set("m", "v", 1, "0")))
	f.together(counters, func(int) error {
		for done := 0; done < each; {
			n, err := f.readNumber()
			if err != nil {
				return err
			}
			next := mutate("counter", set("m", "v", 1, strconv.Itoa(n+1)))
			applied, err := f.store.CheckAndApply(f.ctx, bucketstore.Meta, equals("m", "v", strconv.Itoa(n)), next)
			if err != nil {
				return err
			}
			if applied {
				done++
			}
		}
		return nil
	})
	if n, err := f.readNumber(); err != nil || n != counters*each {
		f.Fatalf("counted %d, %v, want %d", n, err, counters*each)
	}
}

// checkAtomicRow replaces all cells of a row while it is read. Odd versions lie in other
// columns than even ones, so that a torn row shows in its cells.
func checkAtomicRow(f fixture) {
	const writers, readers, versions, width = 2, 2, 100, 40
	write := func(version int) error {
		mut := mutate("row", deleteFamily("l"), deleteFamily("r0"))
		for i := range width {
			qual, value := fmt.Sprintf("%02d-%d", (i*7)%width, version%2), strconv.Itoa(version)
			mut.Ops = append(mut.Ops, set("l", qual, 1, value), set("r0", qual, 1, value))
		}
		return f.store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mut, mutate("row beside", set("l", "q", 1, "x"))})
	}
	if err := write(0); err != nil {
		f.Fatal(err)
	}
	req := everything(bucketstore.Metric)
	req.Rows[0] = series.SingleRow([]byte("row"))
	done := make(chan struct{})
	var writing sync.WaitGroup
	writing.Add(writers)
	f.together(writers+readers+1, func(i int) error {
		switch {
		case i == 0:
			writing.Wait()
			close(done)
			return nil
		case i <= writers:
			defer writing.Done()
			for v := range versions {
				if err := write(v*writers + i); err != nil {
					return err
				}
			}
			return nil
		}
		return f.readUntil(done, req, 2*width)
	})
}

// readUntil scans again and again and checks that the one row has so many
// cells, all with the same value.
func (f fixture) readUntil(done <-chan struct{}, req bucketstore.ScanRequest, cells int) error {
	for {
		rows := 0
		err := f.store.Scan(f.ctx, req, func(r bucketstore.Row) error {
			rows++
			if len(r.Cells) != cells {
				return fmt.Errorf("a row with %d cells, want %d: %s", len(r.Cells), cells, format([]bucketstore.Row{r}))
			}
			for _, c := range r.Cells {
				if string(c.Value) != string(r.Cells[0].Value) {
					return fmt.Errorf("a row of two versions: %s", format([]bucketstore.Row{r}))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if rows != 1 {
			return fmt.Errorf("%d rows, want 1", rows)
		}
		select {
		case <-done:
			return nil
		default:
		}
	}
}

func checkConcurrentTimes(f fixture) {
	const writers, each, quals = 4, 60, 3
	f.together(writers, func(i int) error {
		for n := range each {
			t := int64((n*37+i*11)%each)*writers + int64(i) // Each time once, in no order.
			mut := mutate("row", set("l", strconv.Itoa(n%quals), t, strconv.FormatInt(t, 10)))
			for q := range quals {
				mut.Ops = append(mut.Ops, set("r1", strconv.Itoa(q), t, strconv.FormatInt(t, 10)))
			}
			if err := f.store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mut}); err != nil {
				return err
			}
		}
		return nil
	})
	rows := f.scan(everything(bucketstore.Metric))
	if len(rows) != 1 || len(rows[0].Cells) != 2*quals {
		f.Fatalf("Scan found\n%s\nwant one row of %d cells", format(rows), 2*quals)
	}
	for _, c := range rows[0].Cells[quals:] {
		if c.Time != writers*each-1 {
			f.Fatalf("cell %q has time %d, want the greatest, %d", c.Qualifier, c.Time, writers*each-1)
		}
	}
}

// checkConcurrentDelete deletes what is older than a cell while that cell is
// written. The two take turns in being started last, because a scheduler may
// run what was started last before all else.
func checkConcurrentDelete(f fixture) {
	const rounds = 300
	for t := int64(1); t <= rounds; t++ {
		ops := []bucketstore.Op{set("l", "q", t, "new"), deleteBefore("l", "q", t)}
		f.together(2, func(i int) error {
			return f.store.Apply(f.ctx, bucketstore.Metric, []bucketstore.Mutation{mutate("row", ops[(i+int(t))%2])})
		})
		f.wantTable(bucketstore.Metric, row("row", cell("l", "q", t, "new")))
	}
}
