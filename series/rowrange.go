package series

import (
	"bytes"
	"fmt"
	"slices"
)

// RowRange is the keys in [Start, Limit), in order of bytes. An empty Limit is
// no limit. Ranges share the slices they are made of, which must not be
// written to any more.
type RowRange struct {
	Start, Limit []byte
}

// SingleRow returns the range that holds key and nothing else.
func SingleRow(key []byte) RowRange {
	limit := make([]byte, len(key)+1)
	copy(limit, key)
	return RowRange{Start: key, Limit: limit}
}

// PrefixRange returns the range of all keys that begin with prefix.
func PrefixRange(prefix []byte) RowRange {
	return RowRange{Start: prefix, Limit: prefixLimit(prefix)}
}

// prefixLimit returns the first key after all that begin with prefix, or nil
// if there is none.
func prefixLimit(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			limit := slices.Clone(prefix[:i+1])
			limit[i]++
			return limit
		}
	}
	return nil
}

// Contains says whether key lies in r.
func (r RowRange) Contains(key []byte) bool {
	return bytes.Compare(key, r.Start) >= 0 && (len(r.Limit) == 0 || bytes.Compare(key, r.Limit) < 0)
}

// IsEmpty says whether no key lies in r.
func (r RowRange) IsEmpty() bool {
	return len(r.Limit) > 0 && bytes.Compare(r.Start, r.Limit) >= 0
}

// Prefix returns the prefix that r was made of by PrefixRange.
func (r RowRange) Prefix() (prefix []byte, ok bool) {
	return r.Start, bytes.Equal(r.Limit, prefixLimit(r.Start))
}

// String writes r for people: the two keys, quoted.
func (r RowRange) String() string {
	if len(r.Limit) == 0 {
		return fmt.Sprintf("[%q, ∞)", r.Start)
	}
	return fmt.Sprintf("[%q, %q)", r.Start, r.Limit)
}
