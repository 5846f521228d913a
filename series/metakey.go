package series

import (
	"fmt"
	"strconv"
	"strings"
)

// Kinds of META rows of which there are many, the field before their name. They
// are part of the stored format.
const (
	// MetaMetadata is the kind of the rows that hold the metadata of a metric
	// family each, by its name.
	MetaMetadata = "metadata"
	// MetaHA is the kind of the rows that say which replica of a cluster is
	// elected, by the name of the cluster.
	MetaHA = "ha"
	// MetaImport is the kind of the rows that say how far an import is, by its ID.
	MetaImport = "import"
	// MetaRecorded is the kind of the rows that say how far the recording rules of a group are, by its file and name. The one without a name says
	// which process evaluates rules.
	MetaRecorded = "recorded"
	// MetaBoard is the kind of the rows that hold a board of the page each, by its name.
	MetaBoard = "board"
	// MetaSealPeriod is the kind of the rows that name index periods with cells in
	// FamilyLate that are not sealed yet, each by its start as AppendTime writes it.
	MetaSealPeriod = "seal"
)

// Keys of META rows of which there is one, for all tenants. They are part of the
// stored format.
const (
	// MetaSeal is the key of the row that says which process turns raw cells into
	// chunks, and how far it has come.
	MetaSeal = "seal"
	// MetaClock is the key of the row in which adapters compare their clocks.
	MetaClock = "clock"
	// MetaHorizon is the key of the row that says before which times samples may have been
	// deleted, see package meta.
	MetaHorizon = "horizon"
	// MetaRollup is the key of the row that says of which days there are rollups, see package
	// rollups.
	MetaRollup = "rollup"
	// MetaLate is the kind of the rows that name days that were written to after their rollups may
	// have been made, each by its start as AppendTime writes it.
	MetaLate = "late"
	// MetaDelete is the key of the row that says which process deletes samples, and how
	// far it has come. It is also the kind of the rows that say what is to be deleted, each
	// by its ID.
	MetaDelete = "delete"
	// MetaRules is the key of the row that says which process deletes what retention rules cut, and how
	// far it has come. It is also the kind of the rows that say what lists of rules have cut, each by
	// its ID.
	MetaRules = "rules"
	// MetaLog is the kind of the rows that name the logs of adapters, each by its ID.
	MetaLog = "log"
	// MetaTenant is the kind of the rows that name the tenants of a store, each by its name.
	MetaTenant = "tenant"
)

// AppendMetaTenantKey appends the key of the META row of a tenant to dst.
func AppendMetaTenantKey(dst []byte, name string) []byte {
	return appendEscaped(append(append(dst, MetaTenant...), ','), name, false)
}

// MetaTenantRange returns the META rows of all tenants, in order of their escaped names.
func MetaTenantRange() RowRange { return PrefixRange(AppendMetaTenantKey(nil, "")) }

// ParseMetaTenantKey returns the name in a key of MetaTenantRange. A bad one is ErrCorrupt.
func ParseMetaTenantKey(key []byte) (name string, err error) {
	return parseEscaped(string(key[len(MetaTenant)+1:]), false)
}

// AppendMetaLogKey appends the key of the META row of the log with this ID, which
// is for all tenants, to dst.
func AppendMetaLogKey(dst []byte, id string) []byte { return appendFields(dst, MetaLog, id) }

func appendFields(dst []byte, first, second string) []byte {
	return append(append(append(dst, first...), ','), second...)
}

// MetaStamp is the kind of the rows that say up to which stamp a log has been, each by the ID of the log. They stay when the log is
// removed.
const MetaStamp = "stamp"

// AppendMetaStampKey appends the key of the META row with the stamp of the log with this ID, which is for all tenants, to dst.
func AppendMetaStampKey(dst []byte, id string) []byte { return appendFields(dst, MetaStamp, id) }

// MetaForgotten is the kind of the rows that say that a log was forgotten, each by the ID of the log. They stay: such a log is never replayed.
const MetaForgotten = "forgotten"

// AppendMetaForgottenKey appends the key of the META row that says that the log with this ID was forgotten, which is for all tenants, to dst.
func AppendMetaForgottenKey(dst []byte, id string) []byte {
	return appendFields(dst, MetaForgotten, id)
}

// MetaLogRange returns the META rows of all logs.
func MetaLogRange() RowRange { return PrefixRange(AppendMetaLogKey(nil, "")) }

// ParseMetaLogKey returns the ID in a key of MetaLogRange.
func ParseMetaLogKey(key []byte) (id string) { return string(key[len(MetaLog)+1:]) }

// AppendMetaLateKey appends the key of the META row of a day, in milliseconds, that was written to late, which is for
// all tenants, to dst.
func AppendMetaLateKey(dst []byte, day int64) []byte {
	return AppendTime(append(append(dst, MetaLate...), ','), day)
}

// MetaLateRange returns the META rows of all such days.
func MetaLateRange() RowRange { return PrefixRange([]byte(MetaLate + ",")) }

// ParseMetaLateKey returns the day in a key of MetaLateRange. A bad one is ErrCorrupt.
func ParseMetaLateKey(key []byte) (day int64, err error) {
	if day, err = strconv.ParseInt(string(key[len(MetaLate)+1:]), 10, 64); err != nil {
		return 0, fmt.Errorf("%w: key %q of META: %v", ErrCorrupt, key, err)
	}
	return day, nil
}

// AppendMetaDeleteKey appends the key of the META row of the deletion with this ID, which
// is for all tenants, to dst.
func AppendMetaDeleteKey(dst []byte, id string) []byte { return appendFields(dst, MetaDelete, id) }

// AppendMetaDeleteLogKey appends the key of the META row that says how far a log is
// with a deletion, by their IDs, to dst.
func AppendMetaDeleteLogKey(dst []byte, id, log string) []byte {
	return append(append(AppendMetaDeleteKey(dst, id), ','), log...)
}

// MetaDeleteRange returns the META rows of all deletions. The row of a deletion is
// followed by those of the logs.
func MetaDeleteRange() RowRange { return PrefixRange(AppendMetaDeleteKey(nil, "")) }

// ParseMetaDeleteKey returns the IDs in a key of MetaDeleteRange. That of a log is empty in
// the row of the deletion itself.
func ParseMetaDeleteKey(key []byte) (id, log string) {
	id, log, _ = strings.Cut(string(key[len(MetaDelete)+1:]), ",")
	return id, log
}

// AppendMetaRulesKey appends the key of the META row of the list of retention rules with this ID,
// which is for all tenants, to dst.
func AppendMetaRulesKey(dst []byte, id string) []byte { return appendFields(dst, MetaRules, id) }

// MetaRulesRange returns the META rows of all lists of retention rules.
func MetaRulesRange() RowRange { return PrefixRange(AppendMetaRulesKey(nil, "")) }

// ParseMetaRulesKey returns the ID in a key of MetaRulesRange.
func ParseMetaRulesKey(key []byte) (id string) { return string(key[len(MetaRules)+1:]) }

// AppendMetaKey appends the key of the META row of this kind and name to dst. It
// is limited like a series key. The only error is ErrKeyTooLong, with dst unchanged.
func (s Schema) AppendMetaKey(dst []byte, kind, name string) ([]byte, error) {
	key := append(append(append(dst, s.tenant...), kind...), ',')
	key = appendEscaped(key, name, false)
	if size := len(key) - len(dst); size > MaxSeriesKey {
		return dst, fmt.Errorf("%w: %s of %.64q… needs %d bytes, the limit is %d", ErrKeyTooLong, kind, name, size, MaxSeriesKey)
	}
	return key, nil
}

// MetaRange returns the META rows of a kind. The names in them come in order of
// their escaped form.
func (s Schema) MetaRange(kind string) RowRange { return PrefixRange([]byte(s.tenant + kind + ",")) }

// ParseMetaKey is the inverse of AppendMetaKey. The key of another tenant is
// ErrCorrupt; a schema of all tenants takes each.
func (s Schema) ParseMetaKey(key []byte) (kind, name string, err error) {
	rest, ok := cutTenant(s, string(key))
	kind, field, more := cutField(rest)
	if _, _, extra := cutField(field); !ok || !more || extra {
		return "", "", fmt.Errorf("%w: %.64q is no key of META", ErrCorrupt, key)
	}
	name, err = parseEscaped(field, false)
	return kind, name, err
}
