package series

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxTenant is the largest size of a tenant in bytes, before escaping.
const MaxTenant = 150

// ErrTenant marks a name that no tenant can have.
var ErrTenant = errors.New("invalid tenant")

// tenantMarks are what names of tenants may have beside letters and digits of ASCII: those of Mimir and Loki.
const tenantMarks = "!-_.*'()"

// reservedTenants begin keys of META that are for all tenants, or would be taken for one of those.
var reservedTenants = []string{
	MetaSchema, MetaSeal, MetaClock, MetaHorizon, MetaRollup, MetaLate, MetaDelete, MetaRules, MetaLog, MetaStamp, MetaForgotten, MetaTenant,
	MetaMetadata, MetaHA, MetaImport, MetaRecorded, MetaBoard, "member",
}

// CheckTenant returns an ErrTenant that says why a tenant cannot be named so: names have 1 to MaxTenant letters and
// digits of ASCII and ! - _ . * ' ( ), and are neither . nor .. nor a word of META.
func CheckTenant(name string) error {
	switch bad := strings.IndexFunc(name, isNoTenantRune); {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrTenant)
	case len(name) > MaxTenant:
		return fmt.Errorf("%w %.32q…: it has %d bytes, the limit is %d", ErrTenant, name, len(name), MaxTenant)
	case bad >= 0:
		return fmt.Errorf("%w %q: names have letters and digits of ASCII and %s", ErrTenant, name, tenantMarks)
	case name == "." || name == ".." || slices.Contains(reservedTenants, name):
		return fmt.Errorf("%w %q: the name is reserved", ErrTenant, name)
	}
	return nil
}

func isNoTenantRune(r rune) bool {
	isPlain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !isPlain && !strings.ContainsRune(tenantMarks, r)
}

// WithTenants returns the schema of all tenants of a store with the same resource labels: it parses the keys of each
// of them, and makes none.
func (s Schema) WithTenants() Schema {
	s.tenancy, s.tenant = true, ""
	return s
}

// ForTenant returns the schema with the same resource labels whose keys and ranges
// are those of a tenant, which has 1 to MaxTenant bytes.
func (s Schema) ForTenant(tenant string) (Schema, error) {
	if tenant == "" || len(tenant) > MaxTenant {
		return Schema{}, fmt.Errorf("%w %.32q: must have 1 to %d bytes", ErrTenant, tenant, MaxTenant)
	}
	s.tenancy, s.tenant = true, string(append(appendEscaped(nil, tenant, false), ','))
	return s, nil
}

// TenantLabel names the tenant of a series, where those of several tenants are together. It is in no key.
const TenantLabel = "__tenant_id__"

// Tenant returns the tenant, or the empty text in a schema of all tenants or without any.
func (s Schema) Tenant() string {
	field, _, _ := cutField(s.tenant)
	name, err := parseEscaped(field, false)
	if err != nil {
		panic("series: a schema with a malformed tenant: " + err.Error()) // ForTenant has made it
	}
	return name
}

// Tenancy says whether keys begin with a tenant.
func (s Schema) Tenancy() bool { return s.tenancy }

// isOfAll says that s is of all tenants.
func (s Schema) isOfAll() bool { return s.tenancy && s.tenant == "" }

// TenantOf returns the tenant that a key of METRIC, CURRENT or INDEX begins with, in a store with tenants. It is ErrCorrupt
// if the key begins with none.
func TenantOf(key []byte) (string, error) {
	field, _, more := cutField(key)
	name, err := parseEscaped(string(field), false)
	if err != nil || !more || name == "" {
		return "", fmt.Errorf("%w: key %q begins with no tenant", ErrCorrupt, key)
	}
	return name, nil
}

// TenantRange returns the rows of METRIC, CURRENT and INDEX, and of META but for those of all tenants, of a tenant.
func (s Schema) TenantRange() RowRange { return PrefixRange([]byte(s.tenant)) }

// cutTenant takes the tenant of s off the front of a key, or any tenant if s is of all.
func cutTenant[T []byte | string](s Schema, key T) (rest T, ok bool) {
	if s.isOfAll() {
		field, rest, more := cutField(key)
		return rest, more && len(field) > 0
	}
	if len(key) < len(s.tenant) || string(key[:len(s.tenant)]) != s.tenant {
		return key, false
	}
	return key[len(s.tenant):], true
}
