package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// defectVariable names the environment variable that breaks the store of
// TestMemory: the name of one of the defects below.
const defectVariable = "STORETEST_DEFECT"

// A memory is a store that knows its families and their ages, correct unless it has a
// defect.
type memory struct {
	mu       sync.Mutex
	rows     [bucketstore.NumTables]model
	now      func() time.Time
	families [bucketstore.NumTables]map[string]bucketstore.FamilySpec
	defect   string
}

func openMemory(_ testing.TB, tables []bucketstore.TableSpec, now func() time.Time) bucketstore.Store {
	m := &memory{now: now, defect: os.Getenv(defectVariable)}
	for _, spec := range tables {
		m.rows[spec.Table] = make(model)
		m.families[spec.Table] = make(map[string]bucketstore.FamilySpec)
		for _, family := range spec.Families {
			m.families[spec.Table][family.Name] = family
		}
	}
	return m
}

func (m *memory) Close() error { return nil }

func (m *memory) Traits() bucketstore.Traits { return bucketstore.Traits{} }

// TestMemoryModel: a Memory does what the model of a store does.
func TestMemoryModel(t *testing.T) { checkModel(newFixture(t, new(Memory))) }

// check returns ErrTable unless all names exist.
func (m *memory) check(ctx context.Context, table bucketstore.Table, families ...string) error {
	if table >= bucketstore.NumTables {
		return bucketstore.ErrTable
	}
	for _, family := range families {
		if _, ok := m.families[table][family]; !ok && m.defect != "unknown family" {
			return fmt.Errorf("%w: %q", bucketstore.ErrTable, family)
		}
	}
	if m.defect == "context ignored" {
		return nil
	}
	return ctx.Err()
}

// checkOps returns why the operations of mut cannot be applied.
func (m *memory) checkOps(ctx context.Context, table bucketstore.Table, mut bucketstore.Mutation) error {
	for _, op := range mut.Ops {
		if err := m.check(ctx, table, op.Family); err != nil {
			return err
		}
		family := m.families[table][op.Family]
		if err := family.CheckOp(&op); err != nil && m.defect != "kinds are mixed" {
			return err
		}
	}
	return m.check(ctx, table)
}

func (m *memory) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	for _, mut := range muts {
		if err := m.checkOps(ctx, table, mut); err != nil {
			return err
		}
	}
	for _, mut := range muts {
		m.mu.Lock()
		m.applyOne(table, mut)
		m.mu.Unlock()
	}
	return nil
}

// applyOne applies mut, with the defect. m.mu is held.
func (m *memory) applyOne(table bucketstore.Table, mut bucketstore.Mutation) {
	copied := bucketstore.Mutation{Key: bytes.Clone(mut.Key)}
	for _, op := range mut.Ops {
		if m.defect != "references kept" {
			op.Qualifier, op.Value = bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
		}
		switch {
		case m.defect == "older wins" && op.Kind == bucketstore.SetCell:
			copied.Ops = append(copied.Ops, deleteColumn(op.Family, string(op.Qualifier)))
		case m.defect == "first of equal times" && op.Kind == bucketstore.SetCell:
			if held, ok := m.rows[table][column{string(mut.Key), op.Family, string(op.Qualifier)}]; ok && held.Time == op.Time {
				continue
			}
		case m.defect == "sums are cells" && op.Kind == bucketstore.Add:
			op.Kind = bucketstore.SetCell
		case m.defect == "sums forget times" && op.Kind == bucketstore.Add:
			op.Time = m.rows[table][column{string(mut.Key), op.Family, string(op.Qualifier)}].Time
		case m.defect == "delete before is inclusive" && op.Kind == bucketstore.DeleteColumnBefore:
			op.Time++
		case m.defect == "delete before deletes all" && op.Kind == bucketstore.DeleteColumnBefore:
			op.Kind = bucketstore.DeleteColumn
		}
		copied.Ops = append(copied.Ops, op)
	}
	if m.defect == "deletes come last" {
		slices.SortStableFunc(copied.Ops, func(a, b bucketstore.Op) int { return int(a.Kind) - int(b.Kind) })
	}
	if m.defect != "torn rows" {
		m.rows[table].apply(copied)
		return
	}
	for _, op := range copied.Ops {
		m.rows[table].apply(bucketstore.Mutation{Key: copied.Key, Ops: []bucketstore.Op{op}})
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
}

func (m *memory) CheckAndApply(ctx context.Context, table bucketstore.Table, cond bucketstore.Condition, mut bucketstore.Mutation) (bool, error) {
	if err := errors.Join(m.check(ctx, table, cond.Family), m.checkOps(ctx, table, mut)); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	holds := m.rows[table].holds(mut.Key, cond)
	if m.defect == "absent equals empty" && !cond.Absent && len(cond.Value) == 0 {
		holds = holds || m.rows[table].holds(mut.Key, absent(cond.Family, string(cond.Qualifier)))
	}
	if m.defect == "conditions race" {
		m.mu.Unlock()
		time.Sleep(time.Microsecond)
		m.mu.Lock()
	}
	if holds {
		m.applyOne(table, mut)
	}
	return holds, nil
}

func (m *memory) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	var names []string
	for _, fr := range req.Families {
		names = append(names, fr.Family)
	}
	if err := m.check(ctx, req.Table, names...); err != nil {
		return err
	}
	m.mu.Lock()
	rows := m.find(req)
	m.mu.Unlock()
	for _, row := range rows {
		if err := m.check(ctx, req.Table); err != nil {
			return err
		}
		if err := fn(row); err != nil && m.defect == "errors wrapped" {
			return fmt.Errorf("scan: %w", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// find returns the rows of req, with the defect. m.mu is held.
func (m *memory) find(req bucketstore.ScanRequest) []bucketstore.Row {
	now := m.now()
	m.rows[req.Table].dropIf(func(c column) bool {
		maxAge := m.families[req.Table][c.family].MaxAge
		age := now.UnixMilli() - m.rows[req.Table][c].Time
		if m.defect == "expires early" {
			age++
		}
		return maxAge > 0 && age > maxAge.Milliseconds() && m.defect != "never expires"
	})
	if m.defect == "limit ignored" {
		req.Limit = 0
	}
	if m.defect == "limits are inclusive" {
		req.Rows = slices.Clone(req.Rows)
		for i, r := range req.Rows {
			if len(r.Limit) > 0 {
				req.Rows[i].Limit = append(bytes.Clone(r.Limit), 0)
			}
		}
	}
	if m.defect == "qualifier limits are ignored" {
		req.Families = slices.Clone(req.Families)
		for i := range req.Families {
			req.Families[i].Limit = nil
		}
	}
	rows := m.rows[req.Table].scan(req)
	for _, row := range rows {
		if m.defect == "families in order of time" {
			slices.SortStableFunc(row.Cells, func(a, b bucketstore.Cell) int { return int(a.Time - b.Time) })
		}
	}
	if m.defect == "signed order of keys" {
		slices.SortStableFunc(rows, func(a, b bucketstore.Row) int { return int(int8(a.Key[0])) - int(int8(b.Key[0])) })
	}
	return rows
}

func (m *memory) Drop(ctx context.Context, table bucketstore.Table, r series.RowRange) error {
	if err := m.check(ctx, table); err != nil {
		return err
	}
	if m.defect == "drop keeps the last row" && len(r.Limit) == 0 {
		r.Limit = []byte{0xff, 0xff, 0xff}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[table].dropIf(func(c column) bool { return r.Contains([]byte(c.key)) })
	return nil
}

func TestMemory(t *testing.T) {
	Run(t, openMemory)
	RunConcurrent(t, openMemory)
	RunExpiry(t, openMemory)
}

// TestDefectsAreFound runs single checks against stores that violate what the check is for.
func TestDefectsAreFound(t *testing.T) {
	t.Setenv(PercentVariable, "100") // fewer rounds may miss one
	for _, tc := range []struct{ defect, check string }{
		{"signed order of keys", "keys in order of bytes"},
		{"families in order of time", "families in order of names"},
		{"limits are inclusive", "every pair of bounds"},
		{"limits are inclusive", "every single row"},
		{"limit ignored", "limit"},
		{"qualifier limits are ignored", "qualifier ranges"},
		{"qualifier limits are ignored", "no row without a cell asked for"},
		{"older wins", "greatest time wins"},
		{"older wins", "random operations"},
		{"first of equal times", "equal times"},
		{"references kept", "no reference is kept"},
		{"delete before is inclusive", "operations"},
		{"delete before is inclusive", "random operations"},
		{"deletes come last", "operations"},
		{"absent equals empty", "conditions"},
		{"drop keeps the last row", "drop a table"},
		{"unknown family", "unknown table or family"},
		{"errors wrapped", "an error of fn ends the scan"},
		{"context ignored", "a context that has ended"},
		{"context ignored", "a context that ends during a scan"},
		{"conditions race", "one of many conditions holds"},
		{"conditions race", "a counter by conditions"},
		{"torn rows", "a row is seen as of one instant"},
		{"delete before deletes all", "delete before does not delete what is newer"},
		{"older wins", "greatest time wins between writers"},
		{"kinds are mixed", "operations on families of another kind"},
		{"sums are cells", "sums"},
		{"sums are cells", "random operations"},
		{"sums are cells", "sums of many writers"},
		{"sums forget times", "the time of a sum"},
		{"never expires", "older than CURRENT keeps"},
		{"never expires", "older than " + rollup.FiveMinutes.String()},
		{"expires early", "as old as " + rollup.Raw.String()},
	} {
		t.Run(tc.defect+" by "+tc.check, func(t *testing.T) {
			if passed, output := runDefect(t, tc.defect, tc.check); passed {
				t.Errorf("the check passed:\n%s", output)
			} else if !strings.Contains(output, "--- FAIL: TestMemory/") {
				t.Errorf("the check did not run:\n%s", output)
			}
		})
	}
}

// runDefect runs one check in a process of its own.
func runDefect(t *testing.T, defect, check string) (passed bool, output string) {
	t.Helper()
	name := strings.ReplaceAll(check, " ", "_")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemory$/^"+name+"$", "-test.timeout=6s")
	cmd.Env = append(os.Environ(), defectVariable+"="+defect)
	out, err := cmd.CombinedOutput()
	return err == nil, string(out)
}
