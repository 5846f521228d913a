package series

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

const (
	// maxIndexText is the largest size in bytes of a text in an INDEX key.
	maxIndexText = 512
	// indexHash is the size in bytes of the hash that ends a longer one, in hex.
	indexHash = 16
	// maxCutText is what stays of a longer one in front of `\#` and the hash.
	maxCutText = maxIndexText - 2 - 2*indexHash
)

// The first fields of INDEX keys.
const (
	postingKind = 'p'
	valueKind   = 'v'
	nameKind    = 'n'
)

// AppendPosting appends the key of the INDEX row that says: the series with
// this key has the label name=value, in the index period that starts at period.
// A series without a metric name has a posting for __name__ with an empty value.
// Like all functions of this file it fails only for a tenant that the schema does
// not allow, then returning dst unchanged, and panics if period is not one that
// PeriodOf returns for a time in [0, MaxTime].
func (s Schema) AppendPosting(dst []byte, tenant, name, value string, period int64, seriesKey []byte) ([]byte, error) {
	dst, err := s.AppendPostingPrefix(dst, tenant, name, value, period)
	if err != nil {
		return dst, err
	}
	return append(dst, seriesKey...), nil
}

// AppendPostingPrefix appends what the postings of name=value in a period have
// in common, the comma before the series key included.
func (s Schema) AppendPostingPrefix(dst []byte, tenant, name, value string, period int64) ([]byte, error) {
	dst, err := s.appendKind(dst, tenant, postingKind)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst = appendEscaped(dst, name, true)
	dst = append(dst, '=')
	dst = cutIndexText(appendEscaped(dst, value, false), start)
	dst = append(dst, ',')
	return append(appendTime(dst, period, IndexPeriod), ','), nil
}

// PostingRange is the range that holds the postings of a label name with any
// value in any period. Where the name is too long for an index key it holds
// those of other names too.
func (s Schema) PostingRange(tenant, name string) (RowRange, error) {
	prefix, err := s.appendKind(nil, tenant, postingKind)
	if err != nil {
		return RowRange{}, err
	}
	start := len(prefix)
	prefix = append(appendEscaped(prefix, name, true), '=')
	return PrefixRange(commonIndexText(prefix, start)), nil
}

// ParsePosting returns the period and the series key of a posting. The series
// key is a part of key. It checks the period and that both keys name the same
// tenant; to parse the series key and to check its labels is for the caller.
func (s Schema) ParsePosting(key []byte) (period int64, seriesKey []byte, err error) {
	tenant, rest, ok := s.cutKind(key, postingKind)
	if !ok {
		return 0, nil, fmt.Errorf("%w: index key %q is no posting", ErrCorrupt, key)
	}
	_, rest, _ = cutField(rest)
	field, seriesKey, ok := cutField(rest)
	if !ok || !bytes.HasPrefix(seriesKey, tenant) {
		return 0, nil, fmt.Errorf("%w: posting %q has no series of its tenant", ErrCorrupt, key)
	}
	if period, err = parseTime(field, IndexPeriod); err != nil {
		return 0, nil, fmt.Errorf("posting %q: %w", key, err)
	}
	return period, seriesKey, nil
}

// AppendValueKey appends the key of the INDEX row that says: the label name has
// this value in a period. The cell of the row holds the value, unescaped.
func (s Schema) AppendValueKey(dst []byte, tenant, name, value string, period int64) ([]byte, error) {
	dst, err := s.appendValuePrefix(dst, tenant, name, period)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	return cutIndexText(appendEscaped(dst, value, false), start), nil
}

// ValueRange is the range that holds the values of a label in a period that
// begin with prefix. Where the prefix is too long for an index key it holds
// other values too.
func (s Schema) ValueRange(tenant, name, prefix string, period int64) (RowRange, error) {
	key, err := s.appendValuePrefix(nil, tenant, name, period)
	if err != nil {
		return RowRange{}, err
	}
	start := len(key)
	return PrefixRange(commonIndexText(appendEscaped(key, prefix, false), start)), nil
}

func (s Schema) appendValuePrefix(dst []byte, tenant, name string, period int64) ([]byte, error) {
	dst, err := s.appendKind(dst, tenant, valueKind)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	dst = append(cutIndexText(appendEscaped(dst, name, true), start), ',')
	return append(appendTime(dst, period, IndexPeriod), ','), nil
}

// AppendNameKey appends the key of the INDEX row that says: there are series
// with this label in a period. The cell of the row holds the name, unescaped.
func (s Schema) AppendNameKey(dst []byte, tenant, name string, period int64) ([]byte, error) {
	dst, err := s.appendNamePrefix(dst, tenant, period)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	return cutIndexText(appendEscaped(dst, name, true), start), nil
}

// ParseNameKey returns the period in a key that AppendNameKey has made.
func (s Schema) ParseNameKey(key []byte) (period int64, err error) {
	_, rest, ok := s.cutKind(key, nameKind)
	if !ok {
		return 0, fmt.Errorf("%w: index key %q is no label name", ErrCorrupt, key)
	}
	field, _, _ := cutField(rest)
	if period, err = parseTime(field, IndexPeriod); err != nil {
		return 0, fmt.Errorf("label name %q: %w", key, err)
	}
	return period, nil
}

// NameRange is the range that holds the label names of a period.
func (s Schema) NameRange(tenant string, period int64) (RowRange, error) {
	prefix, err := s.appendNamePrefix(nil, tenant, period)
	if err != nil {
		return RowRange{}, err
	}
	return PrefixRange(prefix), nil
}

func (s Schema) appendNamePrefix(dst []byte, tenant string, period int64) ([]byte, error) {
	dst, err := s.appendKind(dst, tenant, nameKind)
	if err != nil {
		return dst, err
	}
	return append(appendTime(dst, period, IndexPeriod), ','), nil
}

func (s Schema) appendKind(dst []byte, tenant string, kind byte) ([]byte, error) {
	dst, err := s.appendTenant(dst, tenant)
	if err != nil {
		return dst, err
	}
	return append(dst, kind, ','), nil
}

// cutKind takes the tenant, with its comma, and the kind off the front of an INDEX
// key. It is not ok if the kind is another one.
func (s Schema) cutKind(key []byte, kind byte) (tenant, rest []byte, ok bool) {
	rest = key
	if s.tenancy {
		_, rest, _ = cutField(key)
		tenant = key[:len(key)-len(rest)]
	}
	field, rest, _ := cutField(rest)
	return tenant, rest, len(field) == 1 && field[0] == kind
}

// cutIndexText shortens the escaped text that begins at dst[start:] to what an
// INDEX key may hold.
func cutIndexText(dst []byte, start int) []byte {
	text := dst[start:]
	if len(text) <= maxIndexText {
		return dst
	}
	sum := sha256.Sum256(text)
	dst = dst[:start+escapeBoundary(text, maxCutText)]
	dst = append(dst, '\\', '#')
	return hex.AppendEncode(dst, sum[:indexHash])
}

// commonIndexText shortens the escaped text that begins at dst[start:] to what
// every INDEX key of a text that begins with it has in common.
func commonIndexText(dst []byte, start int) []byte {
	return dst[:start+escapeBoundary(dst[start:], maxCutText)]
}

// escapeBoundary returns the largest n up to limit such that text[:n] does not
// end inside an escape.
func escapeBoundary(text []byte, limit int) int {
	n := 0
	for n < len(text) {
		size := 1
		if text[n] == '\\' {
			size = 2
		}
		if n+size > limit {
			break
		}
		n += size
	}
	return n
}
