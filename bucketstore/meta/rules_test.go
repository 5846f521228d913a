package meta_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// TestRuleLists: lists are put, changed only as they were read, and removed. Their bytes, and their IDs, are part of the format.
func TestRuleLists(t *testing.T) {
	for backend, openRows := range backends {
		t.Run(backend, func(t *testing.T) {
			rows := openRows(t)
			s := open(t, rows, newSchema(t))
			before := metaRows(t, rows)
			put := func(l *meta.RuleList, want bool) {
				t.Helper()
				if got, err := s.PutRuleList(t.Context(), l); err != nil || got != want {
					t.Fatalf("put %t, %v", got, err)
				}
			}
			debug := []meta.Matcher{{Name: "job", Type: "=~", Value: "debug.*"}}
			l := meta.NewRuleList("", [][]meta.Matcher{debug, nil})
			put(&l, true)
			again, other := meta.NewRuleList("", [][]meta.Matcher{debug, nil}), meta.NewRuleList("t", [][]meta.Matcher{debug, nil})
			put(&again, false)
			put(&other, true)
			l.Rules[0].Closed, l.Rules[0].Cuts, l.Rules[0].Removed = 9, meta.Horizons{8, 0, 7}, meta.Horizons{6}
			put(&l, true)
			want := append(slices.Clone(before), `rules,8a59ee58c874d60b21e96eeafb4a6968 v@130000000000 {"rules":[{"matchers":[{"name":"job","type":"=~","value":"debug.*"}],"closed":9,"cuts":{"1h":7,"raw":8},"gone":{"raw":6}},{"matchers":[],"cuts":{},"gone":{}}]}`,
				`rules,9b4f8427d914001459b3af657329bdcd v@130000000000 {"tenant":"t","rules":[{"matchers":[{"name":"job","type":"=~","value":"debug.*"}],"cuts":{},"gone":{}},{"matchers":[],"cuts":{},"gone":{}}]}`)
			slices.Sort(want)
			if got := metaRows(t, rows); !slices.Equal(got, want) {
				t.Errorf("META is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			all, err := s.RuleLists(t.Context())
			if err != nil || len(all) != 2 {
				t.Fatal(all, err)
			}
			mine := slices.IndexFunc(all, func(found meta.RuleList) bool { return found.ID == l.ID })
			if mine < 0 || !reflect.DeepEqual(all[mine], l) {
				t.Errorf("read %+v, want %+v", all, l)
			}
			for i := range all {
				if err := s.RemoveRuleList(t.Context(), &all[i]); err != nil {
					t.Fatal(err)
				}
			}
			if got := metaRows(t, rows); !slices.Equal(got, before) {
				t.Errorf("META is %q, want %q", got, before)
			}
		})
	}
}

// TestBadRuleList: what is no list is an error.
func TestBadRuleList(t *testing.T) {
	rows := openPebble(t)
	s := open(t, rows, newSchema(t))
	if err := meta.Overwrite(t.Context(), rows, string(series.AppendMetaRulesKey(nil, "x")), []byte("?"), someTime); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RuleLists(t.Context()); !errors.Is(err, series.ErrCorrupt) {
		t.Error(err)
	}
}

// TestRuleListLater: times of resolutions of later versions stay when a list is changed.
func TestRuleListLater(t *testing.T) {
	rows := openPebble(t)
	s := open(t, rows, newSchema(t))
	const text = `{"rules":[{"matchers":[],"closed":9,"cuts":{"1d":5,"raw":8},"gone":{"1d":4,"raw":6}}]}`
	if err := meta.Overwrite(t.Context(), rows, string(series.AppendMetaRulesKey(nil, "x")), []byte(text), someTime); err != nil {
		t.Fatal(err)
	}
	lists, err := s.RuleLists(t.Context())
	if err != nil || len(lists) != 1 || lists[0].Rules[0].Cuts != (meta.Horizons{8}) {
		t.Fatal(lists, err)
	}
	lists[0].Rules = slices.Clone(lists[0].Rules)
	lists[0].Rules[0].Removed[1] = 7
	if ok, err := s.PutRuleList(t.Context(), &lists[0]); err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := strings.Replace(text, `"raw":6`, `"5m":7,"raw":6`, 1)
	if got := strings.Join(metaRows(t, rows), "\n"); !strings.Contains(got, want) {
		t.Errorf("META is\n%s\nwant %s", got, want)
	}
}
