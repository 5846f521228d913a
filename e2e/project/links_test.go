package project

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/promtable/promtable/e2e/harness"
)

// A page is one Markdown file, as the host of the repository shows it.
type page struct {
	links   []string
	anchors map[string]bool
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`^#{1,6} +(.+?)[ #]*$`)
	inlineCode = regexp.MustCompile("`[^`]*`")
)

// readPages returns all pages of the repository, by their paths.
func readPages(t testing.TB) map[string]page {
	t.Helper()
	pages := map[string]page{}
	err := filepath.WalkDir(harness.ModuleRoot, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			text, err := os.ReadFile(path)
			pages[path] = parsePage(string(text))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// parsePage finds links and headings. Code has neither.
func parsePage(text string) page {
	p := page{anchors: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if fenced || strings.HasPrefix(line, "    ") {
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			slug := anchor(m[1])
			for n := 1; p.anchors[slug]; n++ {
				slug = anchor(m[1]) + "-" + strconv.Itoa(n)
			}
			p.anchors[slug] = true
		}
		for _, m := range linkTarget.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
			p.links = append(p.links, m[1])
		}
	}
	return p
}

// anchor returns what the host makes of a heading: small letters and digits, "-" for a space.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, linkTarget.ReplaceAllString(heading, ""))
}

// follow returns the file and the heading that a link on a page leads to. Links to other hosts have no file.
func follow(t testing.TB, path, target string) (file, fragment string) {
	t.Helper()
	u, err := url.Parse(target)
	switch {
	case err != nil:
		t.Errorf("%s: %v", path, err)
		return "", ""
	case u.Scheme != "":
		return "", ""
	case u.Path == "":
		return path, u.Fragment
	}
	return filepath.Join(filepath.Dir(path), filepath.FromSlash(u.Path)), u.Fragment
}

// TestLinks: the files and headings that pages link to exist.
func TestLinks(t *testing.T) {
	pages := readPages(t)
	checked := 0
	for path, p := range pages {
		for _, target := range p.links {
			file, fragment := follow(t, path, target)
			if file == "" {
				continue
			}
			checked++
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, target)
			} else if fragment != "" && !pages[file].anchors[fragment] {
				t.Errorf("%s links to %s, which has no such heading", path, target)
			}
		}
	}
	if checked < 150 {
		t.Errorf("only %d links were found", checked)
	}
}

// TestReached: links lead from the README to every file of docs.
func TestReached(t *testing.T) {
	pages := readPages(t)
	reached := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if reached[path] {
			return
		}
		reached[path] = true
		for _, target := range pages[path].links {
			file, _ := follow(t, path, target)
			visit(file)
		}
	}
	visit(filepath.Join(harness.ModuleRoot, "README.md"))
	files, err := filepath.Glob(filepath.Join(harness.ModuleRoot, "docs", "*"))
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if !reached[file] {
			t.Errorf("no link leads from the README to %s", file)
		}
	}
}
