package rules

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// A ruleKey names a rule of a file: the positions of its group, by name, and of the rule.
type ruleKey struct {
	file, group string
	rule        int
}

// beginComment is what a comment of a rule or of its group says: from when on a new rule is evaluated.
var beginComment = regexp.MustCompile(`\bbegin: *(\S+)`)

// readBegins returns from when on new rules are evaluated, in milliseconds, by the comments of the files: "# begin: 2y" at a rule, at the name of its group, or above
// one of them. Rules without one are not in it.
func readBegins(files []string, now time.Time) (map[ruleKey]int64, error) {
	begins := make(map[ruleKey]int64)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var doc yaml.Node
		if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
			continue // Prometheus' manager says what is wrong
		}
		for _, group := range items(child(doc.Content[0], "groups")) {
			name := child(group, "name")
			if name == nil {
				continue
			}
			ofGroup := comments(group)
			for i, rule := range items(child(group, "rules")) {
				at, ok, err := beginOf(comments(rule)+ofGroup, now)
				if err != nil {
					return nil, fmt.Errorf("%s: line %d: %w", file, rule.Line, err)
				}
				if ok {
					begins[ruleKey{file, name.Value, i}] = at
				}
			}
		}
	}
	return begins, nil
}

// child returns the value of a key of a mapping, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// items returns the elements of a sequence.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// comments returns the comments of a mapping, and of its keys and plain values, in lines.
func comments(n *yaml.Node) string {
	var b strings.Builder
	add := func(n *yaml.Node) {
		for _, text := range []string{n.HeadComment, n.LineComment} {
			b.WriteString(text + "\n")
		}
	}
	add(n)
	for _, c := range n.Content {
		if c.Kind == yaml.ScalarNode {
			add(c)
		}
	}
	return b.String()
}

// beginOf returns what the first comment with a begin says.
func beginOf(text string, now time.Time) (at int64, ok bool, err error) {
	found := beginComment.FindStringSubmatch(text)
	if found == nil {
		return 0, false, nil
	}
	if d, err := model.ParseDuration(found[1]); err == nil {
		return now.Add(-time.Duration(d)).UnixMilli(), true, nil
	}
	t, err := time.Parse(time.RFC3339, found[1])
	if err != nil {
		return 0, false, fmt.Errorf("begin: %s is neither a duration such as 2y nor a time such as 2024-01-31T00:00:00Z", found[1])
	}
	return t.UnixMilli(), true, nil
}
