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

// AppendPostingPrefix appends what the postings of name=value have in common in the
// index period that starts at period. With a series key behind it, it is the key of
// the INDEX row that says: this series has this label in this period. A series
// without a metric name has a posting for __name__ with an empty value. Like all
// functions of this file it panics if period is not one that PeriodOf returns for a
// time in [0, MaxTime].
func (s Schema) AppendPostingPrefix(dst []byte, name, value string, period int64) []byte {
	dst = s.appendKind(dst, postingKind)
	start := len(dst)
	dst = appendEscaped(dst, name, true)
	dst = append(dst, '=')
	dst = cutIndexText(appendEscaped(dst, value, false), start)
	return appendPeriod(append(dst, ','), period)
}

// PostingRange is the range that holds the postings of a label name with any
// value in any period. Where the name is too long for an index key it holds
// those of other names too.
func (s Schema) PostingRange(name string) RowRange {
	prefix := s.appendKind(nil, postingKind)
	start := len(prefix)
	prefix = append(appendEscaped(prefix, name, true), '=')
	return PrefixRange(commonIndexText(prefix, start))
}

// ParsePosting returns the period and the series key of a posting. The series
// key is a part of key. It checks the period and that both keys are of the tenant;
// to parse the series key and to check its labels is for the caller.
func (s Schema) ParsePosting(key []byte) (period int64, seriesKey []byte, err error) {
	rest, ok := s.cutKind(key, postingKind)
	if !ok {
		return 0, nil, fmt.Errorf("%w: index key %q is no posting", ErrCorrupt, key)
	}
	_, rest, _ = cutField(rest)
	field, seriesKey, ok := cutField(rest)
	if !ok || !bytes.HasPrefix(seriesKey, []byte(s.tenant)) {
		return 0, nil, fmt.Errorf("%w: posting %q has no series of its tenant", ErrCorrupt, key)
	}
	if period, err = parseTime(field, IndexPeriod); err != nil {
		return 0, nil, fmt.Errorf("posting %q: %w", key, err)
	}
	return period, seriesKey, nil
}

// AppendPostingIn appends the posting of the same label and series as a posting, in another period.
// The posting is one that ParsePosting accepts, with the series key that it returned.
func AppendPostingIn(dst, posting, seriesKey []byte, period int64) []byte {
	label := len(posting) - len(seriesKey) - len(",") - TimeDigits
	dst = appendPeriod(append(dst, posting[:label]...), period)
	return append(dst, seriesKey...)
}

// AppendValueKey appends the key of the INDEX row that says: the label name has
// this value in a period. The cell of the row holds the value, unescaped.
func (s Schema) AppendValueKey(dst []byte, name, value string, period int64) []byte {
	dst = s.appendValuePrefix(dst, name, period)
	start := len(dst)
	return cutIndexText(appendEscaped(dst, value, false), start)
}

// ValueRange is the range that holds the values of a label in a period that
// begin with prefix. Where the prefix is too long for an index key it holds
// other values too.
func (s Schema) ValueRange(name, prefix string, period int64) RowRange {
	key := s.appendValuePrefix(nil, name, period)
	start := len(key)
	return PrefixRange(commonIndexText(appendEscaped(key, prefix, false), start))
}

func (s Schema) appendValuePrefix(dst []byte, name string, period int64) []byte {
	dst = s.appendKind(dst, valueKind)
	start := len(dst)
	dst = append(cutIndexText(appendEscaped(dst, name, true), start), ',')
	return appendPeriod(dst, period)
}

// AppendNameKey appends the key of the INDEX row that says: there are series
// with this label in a period. The cell of the row holds the name, unescaped.
func (s Schema) AppendNameKey(dst []byte, name string, period int64) []byte {
	dst = s.appendNamePrefix(dst, period)
	start := len(dst)
	return cutIndexText(appendEscaped(dst, name, true), start)
}

// ParseNameKey returns the period in a key that AppendNameKey has made.
func (s Schema) ParseNameKey(key []byte) (period int64, err error) {
	rest, ok := s.cutKind(key, nameKind)
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
func (s Schema) NameRange(period int64) RowRange {
	return PrefixRange(s.appendNamePrefix(nil, period))
}

func (s Schema) appendNamePrefix(dst []byte, period int64) []byte {
	return appendPeriod(s.appendKind(dst, nameKind), period)
}

func (s Schema) appendKind(dst []byte, kind byte) []byte {
	return append(append(dst, s.tenant...), kind, ',')
}

func appendPeriod(dst []byte, period int64) []byte {
	return append(appendTime(dst, period, IndexPeriod), ',')
}

// cutKind takes the tenant and the kind off the front of an INDEX key. It is not ok
// if one of them is another one.
func (s Schema) cutKind(key []byte, kind byte) (rest []byte, ok bool) {
	rest, ok = cutTenant(s, key)
	if !ok || len(rest) < 2 || rest[0] != kind || rest[1] != ',' {
		return nil, false
	}
	return rest[2:], true
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
