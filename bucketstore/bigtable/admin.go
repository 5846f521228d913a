package bigtable

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/bigtable"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/promtable/promtable/bucketstore"
)

// A Policy is the garbage collection of a family, as it is and as it is wanted.
type Policy struct {
	Table bucketstore.Table
	// TableName has the prefix of the tables.
	TableName, Family string
	// Missing says that there is no such family.
	Missing bool
	// Found and Wanted are rules as Bigtable prints them. Found may be empty: no rule.
	Found, Wanted string
	// FoundAge and WantedAge are the ages at which the latest version of a cell is deleted. 0
	// is never.
	FoundAge, WantedAge time.Duration
	// Foreign says that Found is not made as the adapter makes rules: someone has set it.
	Foreign bool
	// AsWanted says that Found deletes what Wanted deletes.
	AsWanted bool
	want     bucketstore.FamilySpec
}

// An Admin reads and changes the garbage collection of the tables of a Config. Its methods
// may be called concurrently, but for Close.
type Admin struct {
	clients
	check schemaCheck
}

// OpenAdmin connects to an instance. It checks nothing.
func OpenAdmin(ctx context.Context, cfg Config) (*Admin, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := reach(ctx, cfg, newMetrics(nil, cfg.Tables))
	if err != nil {
		return nil, err
	}
	return &Admin{clients: c, check: schemaCheck{admin: c.admin, cfg: cfg}}, nil
}

// Close ends the connections.
func (a *Admin) Close() error { return a.clients.close() }

// Policies returns the garbage collection of the families of all tables, in the order of
// Config.Tables.
func (a *Admin) Policies(ctx context.Context) (all []Policy, err error) {
	for _, spec := range a.check.cfg.Tables {
		name := a.check.cfg.tableName(spec.Table)
		found, err := a.check.families(ctx, spec)
		if err != nil && status.Code(err) != codes.NotFound {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		for _, f := range spec.Families {
			info, ok := found[f.Name]
			all = append(all, newPolicy(spec.Table, name, f, info.FullGCPolicy, !ok))
		}
	}
	return all, nil
}

func newPolicy(table bucketstore.Table, name string, f bucketstore.FamilySpec, found bigtable.GCPolicy, missing bool) Policy {
	wanted := gcPolicy(f)
	p := Policy{Table: table, TableName: name, Family: f.Name, Missing: missing, Wanted: wanted.String(), WantedAge: ageOf(wanted), want: f}
	if missing {
		return p
	}
	p.Found, p.FoundAge, p.Foreign = found.String(), ageOf(found), !isOwn(found)
	p.AsWanted = p.FoundAge == p.WantedAge && singleVersion(found)
	return p
}

// SetPolicy sets the garbage collection of a family that exists to the wanted one.
//
// Bigtable warns if a rule of a table with several clusters becomes longer: what one has
// deleted is still in another. The caller has hidden that before, so the warning is ignored.
func (a *Admin) SetPolicy(ctx context.Context, p Policy) error {
	ctx, cancel := context.WithTimeout(ctx, a.check.cfg.AdminTimeout)
	defer cancel()
	err := a.admin.SetGCPolicyWithOptions(ctx, p.TableName, p.Family, gcPolicy(p.want), bigtable.IgnoreWarnings())
	if err != nil {
		return fmt.Errorf("set the garbage collection of family %s of table %s: %w", p.Family, p.TableName, callError(ctx, err))
	}
	return nil
}

// isOwn says whether a policy is made as gcPolicy makes it.
func isOwn(policy bigtable.GCPolicy) bool {
	age := ageOf(policy)
	return policy.String() == gcPolicy(bucketstore.FamilySpec{MaxAge: age}).String()
}

// ageOf returns the age at which a policy deletes the latest version of a cell. 0 is never.
func ageOf(policy bigtable.GCPolicy) time.Duration {
	if age := lifetime(policy); age < forever {
		return age
	}
	return 0
}
