package ui_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFindingsDocs: what the page links to is a heading of the documentation, and the metrics that it looks at are explained there.
func TestFindingsDocs(t *testing.T) {
	rules, err := os.ReadFile("static/tabs/findings.js")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	headings := make(map[string]bool)
	notWord := regexp.MustCompile(`[^a-z0-9 -]`)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
		headings[filepath.Base(path)] = true
		for line := range strings.Lines(string(text)) {
			if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
				slug := strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
				headings[filepath.Base(path)+"#"+slug] = true
			}
		}
	}
	links := regexp.MustCompile(`doc: "([^"]+)"`).FindAllSubmatch(rules, -1)
	if len(links) < 20 {
		t.Fatalf("%d rules have a link", len(links))
	}
	for _, link := range links {
		if !headings[string(link[1])] {
			t.Errorf("there is no heading docs/%s", link[1])
		}
	}
	for _, name := range regexp.MustCompile(`"(adapter_[a-z_]+)"`).FindAllSubmatch(rules, -1) {
		if !strings.Contains(all.String(), string(name[1])) {
			t.Errorf("the documentation does not name %s", name[1])
		}
	}
}
