package series_test

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// newSchema returns a schema without tenants if tenant is empty.
func newSchema(t testing.TB, resource []string, tenant string) series.Schema {
	t.Helper()
	s, err := series.NewSchema(resource)
	if err == nil && tenant != "" {
		s, err = s.ForTenant(tenant)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appendSeriesKey(t testing.TB, s series.Schema, ls labels.Labels) []byte {
	t.Helper()
	key, err := s.AppendSeriesKey(nil, ls)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func appendPosting(s series.Schema, name, value string, period int64, seriesKey []byte) []byte {
	return append(s.AppendPostingPrefix(nil, name, value, period), seriesKey...)
}

func parseSeriesKey(s series.Schema, key []byte) (labels.Labels, error) {
	b := labels.NewScratchBuilder(0)
	return s.ParseSeriesKey(key, &b)
}

// rawLabels is the label set of these pairs as they stand: in this order, with
// duplicates and empty texts.
func rawLabels(pairs ...string) labels.Labels {
	b := labels.NewScratchBuilder(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		b.Add(pairs[i], pairs[i+1])
	}
	return b.Labels()
}
