package bigtable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"cloud.google.com/go/bigtable"
	"github.com/go-kit/log/level"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
)

// A schemaCheck creates missing tables and families and checks the others. It destroys
// nothing.
//
// It never changes the garbage collection of an existing family. If that deletes cells
// earlier than wanted, an operator has said how long to keep them: this is a warning about
// what it means. Only META may not forget, because it holds the schema and the identity of
// the store: this is an error. If it deletes too late, that only costs storage, because
// readers ask for the latest version and check times themselves: this is a warning. To
// shorten it deletes data, so it is left to the operator too, who has a command for it: see
// Admin.
type schemaCheck struct {
	admin *bigtable.AdminClient
	cfg   Config
	// problems are the reasons not to open the store.
	problems []error
	// found are the tables with the ages to which their families keep cells.
	found []bucketstore.TableSpec
}

// run checks all tables, so that one error names all problems.
func (c *schemaCheck) run(ctx context.Context) error {
	for _, spec := range c.cfg.Tables {
		if err := c.table(ctx, spec); err != nil {
			return fmt.Errorf("table %s: %w", c.cfg.tableName(spec.Table), err)
		}
	}
	return errors.Join(c.problems...)
}

// table checks one table or creates it. Another adapter may do the same at that time.
func (c *schemaCheck) table(ctx context.Context, spec bucketstore.TableSpec) error {
	kept := bucketstore.TableSpec{Table: spec.Table}
	defer func() { c.found = append(c.found, kept) }()
	found, err := c.families(ctx, spec)
	if status.Code(err) == codes.NotFound {
		if !c.cfg.CreateTables {
			c.problem("table %s with families %q does not exist, and tables are not to be created", c.cfg.tableName(spec.Table), familyNames(spec))
			return nil
		}
		err = c.create(ctx, spec)
		if err == nil {
			kept = spec
		}
		if err == nil || status.Code(err) != codes.AlreadyExists {
			return err
		}
		found, err = c.families(ctx, spec)
	}
	if err != nil {
		return err
	}
	for _, family := range spec.Families {
		if err := c.family(ctx, spec, family, found); err != nil {
			return fmt.Errorf("family %s: %w", family.Name, err)
		}
		if f, ok := found[family.Name]; ok {
			family.MaxAge = ageOf(f.FullGCPolicy)
		}
		kept.Families = append(kept.Families, family)
	}
	return nil
}

// families returns the families of a table by name.
func (c *schemaCheck) families(ctx context.Context, spec bucketstore.TableSpec) (map[string]bigtable.FamilyInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ReachTimeout)
	defer cancel()
	info, err := c.admin.TableInfo(ctx, c.cfg.tableName(spec.Table))
	if err != nil {
		return nil, c.cfg.unreachable(ctx, serviceAdminAddress, err)
	}
	found := make(map[string]bigtable.FamilyInfo, len(info.FamilyInfos))
	for _, f := range info.FamilyInfos {
		found[f.Name] = f
	}
	return found, nil
}

// create makes a table with its families.
func (c *schemaCheck) create(ctx context.Context, spec bucketstore.TableSpec) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AdminTimeout)
	defer cancel()
	conf := &bigtable.TableConf{
		TableID:        c.cfg.tableName(spec.Table),
		SplitKeys:      splitKeys(spec.Table),
		ColumnFamilies: make(map[string]bigtable.Family),
	}
	for _, f := range spec.Families {
		conf.ColumnFamilies[f.Name] = newFamily(f)
	}
	err := c.admin.CreateTableFromConf(ctx, conf)
	if err == nil {
		level.Info(c.cfg.Logger).Log("msg", "created table", "table", conf.TableID, "families", fmt.Sprint(familyNames(spec)))
	}
	return callError(ctx, err)
}

// splitKeys returns where a new table is divided. A table without splits is on one node
// until Bigtable has seen its load, for minutes. The keys of METRIC and CURRENT begin with a
// metric name, those of most rows of INDEX with p, and a label name. Bigtable moves and joins
// the parts later.
func splitKeys(table bucketstore.Table) (keys []string) {
	prefix := ""
	switch table {
	case bucketstore.Meta:
		return nil
	case bucketstore.Index:
		prefix = "p,"
	}
	for letter := 'a'; letter <= 'z'; letter++ {
		keys = append(keys, prefix+string(letter))
	}
	return keys
}

// family checks a family or creates it.
func (c *schemaCheck) family(ctx context.Context, spec bucketstore.TableSpec, f bucketstore.FamilySpec, found map[string]bigtable.FamilyInfo) error {
	if info, ok := found[f.Name]; ok {
		c.checkFamily(spec, f, info)
		return nil
	}
	table := c.cfg.tableName(spec.Table)
	if !c.cfg.CreateTables {
		c.problem("family %s of table %s does not exist, and families are not to be created", f.Name, table)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AdminTimeout)
	defer cancel()
	err := c.admin.CreateColumnFamilyWithConfig(ctx, table, f.Name, newFamily(f))
	if err == nil {
		level.Info(c.cfg.Logger).Log("msg", "created family", "table", table, "family", f.Name)
	}
	if status.Code(err) != codes.AlreadyExists {
		return callError(ctx, err)
	}
	// Another process was faster, and may want another retention.
	if found, err = c.families(ctx, spec); err == nil {
		c.checkFamily(spec, f, found[f.Name])
	}
	return err
}

// newFamily returns a family as it is created.
func newFamily(f bucketstore.FamilySpec) bigtable.Family {
	family := bigtable.Family{GCPolicy: gcPolicy(f)}
	if f.Sum {
		family.ValueType = bigtable.AggregateType{Input: bigtable.Int64Type{}, Aggregator: bigtable.SumAggregator{}}
	}
	return family
}

// isSum says whether a family is an aggregate that sums numbers of 8 bytes, big-endian.
func isSum(info bigtable.FamilyInfo) bool {
	aggregate, _ := info.ValueType.(bigtable.AggregateType)
	number, _ := aggregate.Input.(bigtable.Int64Type)
	return aggregate.Aggregator == bigtable.SumAggregator{} && number.Encoding == bigtable.BigEndianBytesEncoding{}
}

// checkFamily compares a family with the one wanted.
func (c *schemaCheck) checkFamily(spec bucketstore.TableSpec, f bucketstore.FamilySpec, info bigtable.FamilyInfo) {
	if table := c.cfg.tableName(spec.Table); f.Sum && !isSum(info) {
		c.problem("family %s of table %s is no aggregate of the type intsum, which is fixed when a family is created; no adapter has written to it: delete it, and start an adapter that may create families; run: cbt -project=%s -instance=%s deletefamily %s %s",
			f.Name, table, c.cfg.Project, c.cfg.Instance, table, f.Name)
	}
	c.checkPolicy(spec, f, info.FullGCPolicy)
}

// checkPolicy compares the garbage collection of a family with the one wanted.
func (c *schemaCheck) checkPolicy(spec bucketstore.TableSpec, f bucketstore.FamilySpec, found bigtable.GCPolicy) {
	table, wanted := c.cfg.tableName(spec.Table), gcPolicy(f)
	switch {
	case lifetime(found) < lifetime(wanted) && spec.Table == bucketstore.Meta:
		c.problem("family %s of table %s deletes the schema and the identity of the store by age: found %q, want %q; %s corrects it",
			f.Name, table, found, wanted, applyCommand)
	case lifetime(found) < lifetime(wanted):
		level.Warn(c.cfg.Logger).Log("msg", "someone has changed the garbage collection of a column family: it deletes cells earlier than the adapter wants", "table", table, "family", f.Name,
			"age", lifetime(found), "meaning", earlyMeaning[spec.Table], "found", found, "wanted", wanted, "to_keep_more", applyCommand)
	case lifetime(found) > lifetime(wanted) || !singleVersion(found):
		level.Warn(c.cfg.Logger).Log("msg", "the garbage collection of a column family keeps cells longer than the adapter wants, which costs storage", "table", table, "family", f.Name,
			"found", found, "wanted", wanted, "fix", applyCommand)
	}
}

// earlyMeaning says what it means that cells of a table are deleted at an age.
var earlyMeaning = map[bucketstore.Table]string{
	bucketstore.Metric:  "samples in this family that are older are deleted",
	bucketstore.Current: "the last values of series that are older are deleted, their samples are not",
	bucketstore.Index:   "series are not found in index periods that ended longer ago, even if their samples are stored",
}

// applyCommand is the command that sets the garbage collection of families, for messages. It
// takes the flags of the adapter.
const applyCommand = "adapter schema apply"

func (c *schemaCheck) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

func familyNames(spec bucketstore.TableSpec) []string {
	names := make([]string, len(spec.Families))
	for i, f := range spec.Families {
		names[i] = f.Name
	}
	return names
}

// gcPolicy returns the garbage collection of a family.
func gcPolicy(f bucketstore.FamilySpec) bigtable.GCPolicy {
	if f.MaxAge <= 0 {
		return bigtable.MaxVersionsPolicy(1)
	}
	return bigtable.UnionPolicy(bigtable.MaxVersionsPolicy(1), bigtable.MaxAgePolicy(maxAge(f)))
}

// maxAge returns the age of f, rounded up to whole seconds: the client reads back no more.
func maxAge(f bucketstore.FamilySpec) time.Duration {
	return (f.MaxAge + time.Second - 1).Truncate(time.Second)
}

// forever is the lifetime of a cell that is never deleted.
const forever time.Duration = math.MaxInt64

// lifetime returns how long a policy keeps the latest version of a cell.
func lifetime(policy bigtable.GCPolicy) time.Duration {
	switch p := policy.(type) {
	case bigtable.MaxAgeGCPolicy:
		return time.Duration(p)
	case bigtable.UnionGCPolicy:
		least := forever
		for _, child := range p.Children {
			least = min(least, lifetime(child))
		}
		return least
	case bigtable.IntersectionGCPolicy:
		if len(p.Children) == 0 {
			return forever
		}
		var greatest time.Duration
		for _, child := range p.Children {
			greatest = max(greatest, lifetime(child))
		}
		return greatest
	}
	// A number of versions never deletes the latest.
	return forever
}

// singleVersion says whether a policy deletes all versions but the latest at once.
func singleVersion(policy bigtable.GCPolicy) bool {
	switch p := policy.(type) {
	case bigtable.MaxVersionsGCPolicy:
		return p == 1
	case bigtable.UnionGCPolicy:
		for _, child := range p.Children {
			if singleVersion(child) {
				return true
			}
		}
	case bigtable.IntersectionGCPolicy:
		for _, child := range p.Children {
			if !singleVersion(child) {
				return false
			}
		}
		return len(p.Children) > 0
	}
	return false
}
