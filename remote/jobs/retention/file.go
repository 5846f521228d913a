package retention

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/expr"
	"github.com/promtable/promtable/series/rollup"
)

// A Rule says how long the series are kept that a selector matches.
type Rule struct {
	// Selector is as it was written. It is empty for what no rule matches.
	Selector string
	Matchers []*labels.Matcher
	// Keep is how long each resolution is kept, see Config.Keep.
	Keep bucketstore.Retention
}

// Matches says whether the rule matches a series.
func (r *Rule) Matches(ls labels.Labels) bool { return labels.Selector(r.Matchers).Matches(ls) }

// forEver is, in a file of rules, what 0 is.
const forEver = "forever"

// A ruleEntry is a rule in a file.
type ruleEntry struct {
	Match string
	keep  [rollup.NumResolutions]string
	// err is what is wrong with its form.
	err error
}

// entryType is a struct with the keys of a rule: match, and one for each resolution.
var entryType = newEntryType()

func newEntryType() reflect.Type {
	field := func(name, key string) reflect.StructField {
		return reflect.StructField{Name: name, Type: reflect.TypeFor[string](), Tag: reflect.StructTag(fmt.Sprintf("yaml:%q", key))}
	}
	fields := []reflect.StructField{field("Match", "match")}
	for of := range rollup.NumResolutions {
		fields = append(fields, field(fmt.Sprintf("Keep%d", of), of.String()))
	}
	return reflect.StructOf(fields)
}

// UnmarshalYAML implements yaml.Unmarshaler. An error is kept, so that it is told with the selector.
func (e *ruleEntry) UnmarshalYAML(unmarshal func(any) error) error {
	entry := reflect.New(entryType)
	e.err = unmarshal(entry.Interface())
	if wrong := (*yaml.TypeError)(nil); errors.As(e.err, &wrong) {
		for i := range wrong.Errors {
			wrong.Errors[i], _, _ = strings.Cut(wrong.Errors[i], " in type struct")
		}
	}
	e.Match = entry.Elem().Field(0).String()
	for of := range e.keep {
		e.keep[of] = entry.Elem().Field(1 + of).String()
	}
	return nil
}

// ParseRules reads a file of rules, as YAML. What a rule does not say is as in flags. name is that of the file, for errors.
func ParseRules(name string, text []byte, flags bucketstore.Retention) (rules []Rule, err error) {
	var file struct {
		Rules []ruleEntry `yaml:"rules"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("file %s: %w", name, err)
	}
	if len(file.Rules) == 0 {
		return nil, fmt.Errorf("file %s has no rules: give it a list of rules, or leave the flag out", name)
	}
	for i := range file.Rules {
		rule, err := file.Rules[i].parse(flags)
		if err != nil {
			return nil, fmt.Errorf("file %s, rule %d %s: %w", name, i+1, file.Rules[i].Match, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// parse returns the rule of an entry.
func (e *ruleEntry) parse(flags bucketstore.Retention) (r Rule, err error) {
	switch {
	case e.err != nil:
		return r, e.err
	case e.Match == "":
		return r, errors.New("it has no selector: give it match: '{…}'")
	}
	r = Rule{Selector: e.Match, Keep: flags}
	if r.Matchers, err = expr.NewParser(parser.Options{}).ParseMetricSelector(e.Match); err != nil {
		return r, fmt.Errorf("match: %w", err)
	}
	for of, text := range e.keep {
		switch {
		case text == "":
			continue
		case flags[of] == timeline.Off:
			return r, fmt.Errorf("%s: no such rollups are made, as --retention.resolution-%[1]s=off says: leave it out", rollup.Resolution(of))
		case text == forEver:
			r.Keep[of] = 0
			continue
		}
		age, err := model.ParseDuration(text)
		if err != nil {
			return r, fmt.Errorf("%s: %w, or is %s", rollup.Resolution(of), err, forEver)
		}
		r.Keep[of] = time.Duration(age)
	}
	return r, Check(r.Keep, func(of rollup.Resolution, age time.Duration) string {
		return fmt.Sprintf("%s: %s", of, model.Duration(age))
	})
}

// Check returns what is wrong with how long resolutions are kept. setting names how long one is, as it was given.
func Check(keep bucketstore.Retention, setting func(of rollup.Resolution, age time.Duration) string) error {
	if raw := keep[rollup.Raw]; raw != 0 && raw < MinRaw {
		return fmt.Errorf("%s is too short: give it %s or more, or 0 to keep samples for ever", setting(rollup.Raw, raw), model.Duration(MinRaw))
	}
	finer := rollup.Raw
	for _, of := range rollup.Downsampled {
		switch {
		case keep[of] == timeline.Off:
			continue
		case keep[of] > 0 && isShorter(keep[of], keep[finer]):
			return fmt.Errorf("%s is shorter than %s, where 0 is for ever: give it as much or more, 0 to keep such rollups for ever, or off to make none",
				setting(of, keep[of]), setting(finer, keep[finer]))
		}
		finer = of
	}
	return nil
}

// isShorter says whether an age is shorter than another. 0 is for ever.
func isShorter(age, than time.Duration) bool { return age != 0 && (than == 0 || age < than) }

// Longest returns how long the store keeps each resolution: the longest of flags and rules.
func Longest(flags bucketstore.Retention, rules []Rule) bucketstore.Retention {
	for _, r := range rules {
		for of := range flags {
			if flags[of] != timeline.Off && isShorter(flags[of], r.Keep[of]) {
				flags[of] = r.Keep[of]
			}
		}
	}
	return flags
}

// WithRest returns rules and a last one that matches all other series, which has the flags.
func WithRest(rules []Rule, flags bucketstore.Retention) []Rule {
	return append(rules[:len(rules):len(rules)], Rule{Keep: flags})
}

// Walked returns how long the rule keeps a resolution, if that is less long than the store does: then it is removed series by series.
func (r *Rule) Walked(of rollup.Resolution, longest bucketstore.Retention) (age time.Duration, ok bool) {
	age = timeline.Ages(r.Keep)[of]
	return age, isShorter(age, timeline.Ages(longest)[of])
}
