package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// CheckConfig says what Check reads. Store, Report and Progress are required.
type CheckConfig struct {
	Store bucketstore.Store
	// Schema is the schema of the store, which may be of all tenants. Then Tenants are the names of those that META has, dropped ones that
	// still have rows included.
	Schema  series.Schema
	Tenants []string
	// Horizon is the time in milliseconds before which samples may have been deleted. Samples
	// of index periods before it need no index.
	Horizon int64
	// Repair writes missing rows of the index.
	Repair bool
	// Report is called with each row that cannot be read as what it should be, and with rows
	// of the index that are missing or have another value: the first ones, and the number of
	// the others.
	Report func(bucketstore.Finding)
	// Progress is called after some rows of a table were read.
	Progress func(table bucketstore.Table, rows, bytes int64)
}

// CheckResult is what Check counted.
type CheckResult struct {
	// Indexed is how many series in index periods have samples and a commit mark, Unused
	// how many have a mark only. That is no fault: the index is written first.
	Indexed, Unused int64
}

const (
	// checkRows is how many rows of METRIC are checked before their rows of the index are.
	checkRows = 500
	// maxListed is how many missing rows of the index are reported one by one.
	maxListed = 20
	// checkTimeout bounds the check of so many rows.
	checkTimeout = 10 * time.Minute
)

// Check reads all rows of the store and decodes all samples, and reads the rows of the index
// that they need. The store may be in use: samples are read before their rows of the index,
// and are written after them. Memory follows the largest row.
func Check(ctx context.Context, cfg CheckConfig) (CheckResult, error) {
	c := storeCheck{CheckConfig: cfg, tenants: make(map[string]*checkedTenant), builder: labels.NewScratchBuilder(0)}
	checks := map[bucketstore.Table]func(bucketstore.Row) error{
		bucketstore.Metric: c.metricRow, bucketstore.Current: c.currentRow, bucketstore.Index: c.indexRow, bucketstore.Meta: c.metaRow,
	}
	for _, spec := range bucketstore.Tables(bucketstore.Retention{}) {
		if err := c.table(ctx, spec, checks[spec.Table]); err != nil {
			return c.result, fmt.Errorf("check %s: %w", spec.Table, err)
		}
	}
	if more := c.absent - maxListed; more > 0 {
		c.reportAbsent(bucketstore.Index.String(), fmt.Sprintf("%d more rows that series with samples need are missing or have other values", more))
	}
	if c.Repair {
		c.marks -= c.unmarked
	}
	c.result.Unused = c.marks - c.result.Indexed
	return c.result, nil
}

type storeCheck struct {
	CheckConfig
	// tenants are those of the rows so far, by name. A store without tenants has one, without a name.
	tenants map[string]*checkedTenant
	row     reader.Checker
	builder labels.ScratchBuilder
	// marks counts the marks in INDEX, unmarked those that were missing.
	marks, unmarked int64
	// absent counts the rows that are missing in INDEX.
	absent int64
	result CheckResult
}

// A checkedTenant is one whose rows are checked.
type checkedTenant struct {
	series.Schema
	index *index.Index
	// entries are what the rows of METRIC need in the index, since the last look into it.
	entries []index.Entry
}

// of returns the tenant of a row of METRIC, CURRENT or INDEX.
func (c *storeCheck) of(key []byte) (t *checkedTenant, err error) {
	name, schema := "", c.Schema
	if schema.Tenancy() && schema.Tenant() == "" {
		if name, err = series.TenantOf(key); err == nil {
			schema, err = schema.ForTenant(name)
		}
		if err == nil && !slices.Contains(c.Tenants, name) {
			err = fmt.Errorf("%w: META has no tenant %q", series.ErrCorrupt, name)
		}
		if err != nil {
			return nil, err
		}
	}
	if t = c.tenants[name]; t == nil {
		t = &checkedTenant{Schema: schema, index: newIndex(Config{Store: c.Store, Schema: schema})}
		c.tenants[name] = t
	}
	return t, nil
}

// table checks the rows of a table, some at a time.
func (c *storeCheck) table(ctx context.Context, spec bucketstore.TableSpec, check func(bucketstore.Row) error) error {
	req := bucketstore.ScanRequest{Table: spec.Table, Limit: checkRows}
	for _, family := range spec.Families {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: family.Name})
	}
	var rows series.RowRange
	for {
		req.Rows = []series.RowRange{rows}
		last, n, err := c.page(ctx, req, check)
		if err != nil || n < checkRows {
			return err
		}
		rows.Start = append(last, 0)
	}
}

// page checks the next rows, and returns how many there were and the key of the last one.
func (c *storeCheck) page(ctx context.Context, req bucketstore.ScanRequest, check func(bucketstore.Row) error) (last []byte, n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var size int64
	err = c.Store.Scan(ctx, req, func(row bucketstore.Row) error {
		n++
		last = append(last[:0], row.Key...)
		for i := range row.Cells {
			size += int64(len(row.Cells[i].Value))
		}
		if err := check(row); err != nil {
			c.Report(bucketstore.Finding{Where: describeRow(row.Key, req.Table), What: err.Error()})
		}
		return nil
	})
	if err == nil {
		err = c.checkIndex(ctx)
	}
	c.Progress(req.Table, int64(n), size)
	return last, n, err
}

func describeRow(key []byte, table bucketstore.Table) string {
	return fmt.Sprintf("row %q of %s", key, table)
}

// metricRow checks a row of METRIC, and notes what it needs in the index.
func (c *storeCheck) metricRow(row bucketstore.Row) error {
	t, err := c.of(row.Key)
	if err != nil {
		return err
	}
	key, base, err := t.ParseRowKey(nil, row.Key)
	if err != nil {
		return err
	}
	ls, err := t.ParseSeriesKey(key, &c.builder)
	if err != nil {
		return err
	}
	var samples []bucketstore.Cell
	var otherErr error // of the last bad cell that is no sample
	periods := make(map[int64]bool)
	for _, stored := range row.Cells {
		if stored.Family == series.FamilyExemplar {
			if _, err := cell.ParseExemplar(base, stored.Qualifier, stored.Value, &c.builder); err != nil {
				otherErr = err
			}
			continue
		}
		if is, err := reader.CheckRollup(base, stored); is {
			if err != nil {
				otherErr = err
			}
			continue
		}
		samples = append(samples, stored)
		if len(stored.Qualifier) >= series.QualifierSize { // else it is reported below
			delta, _ := series.ParseQualifier(stored.Qualifier[:series.QualifierSize])
			periods[series.PeriodOf(base+int64(delta))] = true
		}
	}
	for period := range periods {
		if period+series.IndexPeriod < c.Horizon {
			continue // the time of its rows is its end
		}
		t.entries = append(t.entries, index.Entry{Key: key, Labels: ls, T: period})
	}
	if err := c.row.Check(base, samples); err != nil {
		return err
	}
	return otherErr
}

// checkIndex looks for the rows of the index that the entries need.
func (c *storeCheck) checkIndex(ctx context.Context) error {
	for _, t := range c.tenants {
		if len(t.entries) == 0 {
			continue
		}
		marked, err := t.index.Check(ctx, t.entries, c.Repair, func(row index.Row) {
			if c.absent++; c.absent <= maxListed {
				c.reportAbsent(describeRow(row.Key, bucketstore.Index), "a series with samples needs it, and it is missing or has another value")
			}
		})
		c.result.Indexed += int64(marked)
		c.unmarked += int64(len(t.entries) - marked)
		clear(t.entries)
		if t.entries = t.entries[:0]; err != nil {
			return err
		}
	}
	return nil
}

func (c *storeCheck) reportAbsent(where, what string) {
	c.Report(bucketstore.Finding{Where: where, What: what, Repair: "write it", Repaired: c.Repair})
}

func (c *storeCheck) currentRow(row bucketstore.Row) error {
	t, err := c.of(row.Key)
	if err != nil {
		return err
	}
	if _, err := t.ParseSeriesKey(row.Key, &c.builder); err != nil {
		return err
	}
	_, err = cell.Parse(row.Cells[0].Value)
	return err
}

// indexRow checks a row of INDEX, and counts the marks.
func (c *storeCheck) indexRow(row bucketstore.Row) error {
	t, err := c.of(row.Key)
	if err != nil {
		return err
	}
	value := string(row.Cells[0].Value)
	if period, err := t.ParseNameKey(row.Key); err == nil {
		return compareKey(row.Key, t.AppendNameKey(nil, value, period))
	}
	if isValueKey(t.Schema, row.Key, value) {
		return nil
	}
	_, seriesKey, err := t.ParsePosting(row.Key)
	if err != nil {
		return err
	}
	if t.PostingRange(labels.MetricName).Contains(row.Key) {
		c.marks++
	}
	_, err = t.ParseSeriesKey(seriesKey, &c.builder)
	return err
}

// isValueKey says whether key is that of the row of a label value. The label is in it, and may
// be any.
func isValueKey(schema series.Schema, key []byte, value string) bool {
	none, want := schema.AppendValueKey(nil, "", "", 0), schema.AppendValueKey(nil, "", value, 0)
	kind := len(none) - len(",,") - series.TimeDigits // bytes in front of the label
	before, ok := bytes.CutSuffix(key, want[len(none)-1:])
	if !ok || !bytes.HasPrefix(key, none[:kind]) || len(before) < kind+series.TimeDigits {
		return false
	}
	_, ok = series.ParseTime(before[len(before)-series.TimeDigits:])
	return ok
}

func compareKey(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: the value in it belongs to row %q", series.ErrCorrupt, want)
	}
	return nil
}

func (c *storeCheck) metaRow(row bucketstore.Row) error { return meta.CheckRow(c.Schema, row) }
