package series

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// MaxSeriesKey is the largest size of a series key in bytes, tenant included.
// Every row key made from one then fits the 4,096 bytes that Bigtable allows.
const MaxSeriesKey = 3072

var (
	// ErrKeyTooLong marks a series whose key is larger than MaxSeriesKey.
	ErrKeyTooLong = errors.New("series key too long")

	// ErrLabels marks a label set that no key can stand for.
	ErrLabels = errors.New("invalid label set")
)

// Schema is the part of the key format that an operator chooses once, before
// the first write. The zero value has no resource labels and no tenant. A
// Schema is read-only and safe for concurrent use.
type Schema struct {
	// resource names the resource labels, sorted, unique.
	resource []string
	// tenant is what every key begins with: the tenant, escaped, and a comma. It is
	// empty in a schema without tenants, and in that of all tenants.
	tenant string
	// tenancy says that keys begin with a tenant.
	tenancy bool
}

// NewSchema returns the schema with these resource labels, in any order, and
// without tenants.
func NewSchema(resource []string) (Schema, error) {
	sorted := slices.Clone(resource)
	slices.Sort(sorted)
	for i, name := range sorted {
		switch {
		case name == "" || name == labels.MetricName:
			return Schema{}, fmt.Errorf("resource label %q: not allowed", name)
		case i > 0 && name == sorted[i-1]:
			return Schema{}, fmt.Errorf("resource label %q: given twice", name)
		}
	}
	return Schema{resource: sorted}, nil
}

// ResourceLabels returns the names of the resource labels, sorted.
func (s Schema) ResourceLabels() []string { return slices.Clone(s.resource) }

// AppendSeriesKey appends the series key of ls to dst. ls has labels, sorted by
// name, each name once, without empty names or values. All errors are the
// sender's fault, short, and name the series: ErrLabels and ErrKeyTooLong. dst is
// then returned unchanged.
func (s Schema) AppendSeriesKey(dst []byte, ls labels.Labels) ([]byte, error) {
	if s.isOfAll() {
		return dst, fmt.Errorf("%w: series %s is of no tenant", ErrLabels, Abbreviate(ls))
	}
	key := appendEscaped(append(dst, s.tenant...), ls.Get(labels.MetricName), false)
	key, err := s.appendLabels(key, ls)
	if err != nil {
		return dst, err
	}
	for _, name := range s.resource {
		key = append(key, ',')
		key = appendEscaped(key, ls.Get(name), false)
	}
	if size := len(key) - len(dst); size > MaxSeriesKey {
		return dst, fmt.Errorf("%w: series %s needs %d bytes, the limit is %d", ErrKeyTooLong, Abbreviate(ls), size, MaxSeriesKey)
	}
	return key, nil
}

// appendLabels checks all labels and appends those that are neither the name
// nor a resource. An unsorted set is refused because it would have a second
// key, which nothing could parse.
func (s Schema) appendLabels(dst []byte, ls labels.Labels) ([]byte, error) {
	if ls.IsEmpty() {
		return dst, fmt.Errorf("%w: no labels", ErrLabels)
	}
	last := ""
	err := ls.Validate(func(l labels.Label) error {
		switch {
		case l.Name == "" || l.Value == "":
			return fmt.Errorf("%w: series %s has the label %.32q=%.32q", ErrLabels, Abbreviate(ls), l.Name, l.Value)
		case l.Name <= last:
			return fmt.Errorf("%w: series %s has the label %.32q twice or out of order", ErrLabels, Abbreviate(ls), l.Name)
		}
		last = l.Name
		if l.Name != labels.MetricName && !s.isResource(l.Name) {
			dst = append(dst, ',')
			dst = appendEscaped(dst, l.Name, true)
			dst = append(dst, '=')
			dst = appendEscaped(dst, l.Value, false)
		}
		return nil
	})
	return dst, err
}

// ParseSeriesKey is the inverse of AppendSeriesKey. The key of another tenant is
// ErrCorrupt; a schema of all tenants takes each, and does not check its name. b is scratch space that the caller may use again; the labels do not
// refer to it or to key.
func (s Schema) ParseSeriesKey(key []byte, b *labels.ScratchBuilder) (ls labels.Labels, err error) {
	if len(key) > MaxSeriesKey {
		return ls, fmt.Errorf("%w: series key %.64q… has %d bytes", ErrCorrupt, key, len(key))
	}
	b.Reset()
	// One copy of the key serves all texts in it that have no escapes.
	head, err := s.parseResources(string(key), b)
	if err != nil {
		return ls, err
	}
	head, ok := cutTenant(s, head)
	if !ok {
		return ls, fmt.Errorf("%w: key %q is not of the tenant", ErrCorrupt, key)
	}
	if err = s.parseLabels(head, b); err != nil {
		return ls, fmt.Errorf("key %q: %w", key, err)
	}
	b.Sort()
	if ls = b.Labels(); ls.IsEmpty() {
		return ls, fmt.Errorf("%w: key %q has no labels", ErrCorrupt, key)
	}
	return ls, nil
}

// parseResources adds the resource labels at the end of key to b and returns
// what is in front of them.
func (s Schema) parseResources(key string, b *labels.ScratchBuilder) (head string, err error) {
	head = key
	for i := len(s.resource) - 1; i >= 0; i-- {
		rest, field, ok := cutLastField(head)
		if !ok {
			return "", fmt.Errorf("%w: key %q lacks resource label %q", ErrCorrupt, key, s.resource[i])
		}
		value, err := parseEscaped(field, false)
		if err != nil {
			return "", err
		}
		if value != "" {
			b.Add(s.resource[i], value)
		}
		head = rest
	}
	return head, nil
}

// parseLabels adds the name and the labels after it to b.
func (s Schema) parseLabels(key string, b *labels.ScratchBuilder) error {
	field, rest, more := cutField(key)
	name, err := parseEscaped(field, false)
	if err != nil {
		return err
	}
	if name != "" {
		b.Add(labels.MetricName, name)
	}
	for last := ""; more; {
		field, rest, more = cutField(rest)
		if last, err = s.parseLabel(field, last, b); err != nil {
			return err
		}
	}
	return nil
}

// parseLabel adds the label of one field to b and returns its name, which must
// sort after last.
func (s Schema) parseLabel(field, last string, b *labels.ScratchBuilder) (name string, err error) {
	eq := indexUnescaped(field, '=')
	if eq <= 0 || eq == len(field)-1 {
		return "", fmt.Errorf("%w: %q is no label", ErrCorrupt, field)
	}
	if name, err = parseEscaped(field[:eq], true); err != nil {
		return "", err
	}
	if name <= last || name == labels.MetricName || s.isResource(name) {
		return "", fmt.Errorf("%w: label %q is out of order", ErrCorrupt, name)
	}
	value, err := parseEscaped(field[eq+1:], false)
	if err != nil {
		return "", err
	}
	b.Add(name, value)
	return name, nil
}

// SeriesRange returns the range that holds the keys of the series with this metric
// name, or of all series if name is empty. It can hold a few keys of other names.
func (s Schema) SeriesRange(name string) RowRange {
	prefix := appendEscaped([]byte(s.tenant), name, false)
	if name == "" {
		return PrefixRange(prefix)
	}
	// What follows the name is nothing, or a comma.
	return RowRange{Start: prefix, Limit: append(slices.Clone(prefix), ','+1)}
}

// AppendRowKey appends to dst the key of the METRIC row that holds the bucket
// at base of the series with this key. It panics if base is not one that Split
// returns.
func (s Schema) AppendRowKey(dst, seriesKey []byte, base int64) []byte {
	at := s.resourceOffset(seriesKey)
	dst = append(append(dst, seriesKey[:at]...), ',')
	return append(appendTime(dst, base, Period), seriesKey[at:]...)
}

// ParseRowKey takes the key of a METRIC row apart and appends the series key in
// it to dst. It checks the base, not the series key: that is for the caller to
// compare or to parse.
func (s Schema) ParseRowKey(dst, key []byte) (seriesKey []byte, base int64, err error) {
	at := s.resourceOffset(key)
	head, field, ok := cutLastField(key[:at])
	if !ok {
		return dst, 0, fmt.Errorf("%w: key %q has no base", ErrCorrupt, key)
	}
	if base, err = parseTime(field, Period); err != nil {
		return dst, 0, fmt.Errorf("key %q: %w", key, err)
	}
	dst = append(dst, head...)
	return append(dst, key[at:]...), base, nil
}

// resourceOffset returns where in a series key or row key the resource values
// begin, comma included.
func (s Schema) resourceOffset(key []byte) int {
	head := key
	for range s.resource {
		head, _, _ = cutLastField(head)
	}
	return len(head)
}

func (s Schema) isResource(name string) bool {
	for _, r := range s.resource {
		if r == name {
			return true
		}
	}
	return false
}

// Abbreviate writes ls for an error message, cut after 256 bytes: senders read
// no more than 1,024 bytes of an answer.
func Abbreviate(ls labels.Labels) string {
	const limit = 256
	text := ls.String()
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
