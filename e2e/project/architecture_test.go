package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// A tree is the files of the repository. Paths begin at its root and have slashes.
type tree struct {
	testing.TB
	files, directories map[string]bool
	// declared caches the names that a file or a directory declares.
	declared map[string]map[string]bool
}

func readTree(t testing.TB) *tree {
	t.Helper()
	r := &tree{t, map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}}
	err := fs.WalkDir(os.DirFS(harness.ModuleRoot), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			r.files[name] = true
		case entry.Name() == "node_modules" || entry.Name() == ".git":
			return fs.SkipDir
		default:
			r.directories[name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// find returns the path of a file or a directory: its name is a path from the root or from one of some directories, or the end of one path
// alone. It returns the empty text if there is none.
func (r *tree) find(name string, from []string) string {
	for _, dir := range append([]string{""}, from...) {
		if p := path.Join(dir, name); r.files[p] || r.directories[p] {
			return p
		}
	}
	found := ""
	for _, paths := range []map[string]bool{r.files, r.directories} {
		for p := range paths {
			if strings.HasSuffix(p, "/"+name) && (strings.Contains(name, "/") || r.directories[p]) {
				if found != "" {
					return ""
				}
				found = p
			}
		}
	}
	return found
}

// directory returns the directory of a path.
func (r *tree) directory(found string) string {
	if r.directories[found] {
		return found
	}
	return path.Dir(found)
}

// names returns what a file, or the Go files of a directory, declare: functions, methods, types, fields, constants and variables. Of a file that is not
// Go these are all words.
func (r *tree) names(of string) map[string]bool {
	r.Helper()
	found := r.declared[of]
	switch {
	case found != nil:
		return found
	case r.directories[of]:
		found = map[string]bool{}
		for file := range r.files {
			if path.Dir(file) == of && path.Ext(file) == ".go" {
				for name := range r.names(file) {
					found[name] = true
				}
			}
		}
	default:
		text, err := os.ReadFile(filepath.Join(harness.ModuleRoot, filepath.FromSlash(of)))
		if err != nil {
			r.Fatal(err)
		}
		if path.Ext(of) == ".go" {
			found = declarations(r, text)
			break
		}
		found = map[string]bool{}
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(string(text), -1) {
			found[word] = true
		}
	}
	r.declared[of] = found
	return found
}

// declarations returns what a Go file declares outside of its functions.
func declarations(t testing.TB, text []byte) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			found[n.Name.Name] = true
			return false
		case *ast.TypeSpec:
			found[n.Name.Name] = true
		case *ast.ValueSpec:
			for _, name := range n.Names {
				found[name.Name] = true
			}
		case *ast.Field:
			for _, name := range n.Names {
				found[name.Name] = true
			}
		}
		return true
	})
	return found
}

var (
	// block begins what stands for itself: a paragraph, a row, an item.
	block      = regexp.MustCompile(`(?m)^(\n|\||- |\d+\. )`)
	quoted     = regexp.MustCompile("`([^`]+)`")
	inFile     = regexp.MustCompile(`^(\S+\.[a-z]+): (\w+)$`)
	inPackage  = regexp.MustCompile(`^([a-z0-9/]+)\.([A-Z]\w*(?:\.\w+)*)$`)
	fileName   = regexp.MustCompile(`^[\w./-]+\.(?:go|md|js|html|json)$`)
	identifier = regexp.MustCompile(`^[A-Za-z]\w*$`)
)

// check checks one name, and returns the directory that it leads to, if it is one of the repository. Directories that were named before are in from, the
// last one first. Where a section is about code, an identifier without a file is declared in one of these.
func (r *tree) check(name string, from []string, isCode bool) (directory string) {
	r.Helper()
	where, idents := name, ""
	for _, form := range []*regexp.Regexp{inFile, inPackage} {
		if m := form.FindStringSubmatch(name); m != nil && !fileName.MatchString(name) {
			where, idents = m[1], m[2]
			break
		}
	}
	found := r.find(where, from)
	switch {
	case found != "":
	case isCode && identifier.MatchString(name) && len(from) > 0:
		found, idents = from[0], name
		for _, dir := range from {
			if r.names(dir)[name] {
				found = dir
				break
			}
		}
	case fileName.MatchString(where) || idents != "" || isCode && regexp.MustCompile(`^[a-z0-9]+/[a-z0-9/]+$`).MatchString(where):
		r.Errorf("there is no %s, or more than one", where)
		return ""
	default: // a flag, a row of META, a column family, a library
		return ""
	}
	if idents != "" {
		for ident := range strings.SplitSeq(idents, ".") {
			if !r.names(found)[ident] {
				r.Errorf("%s declares no %s", found, ident)
			}
		}
	}
	return r.directory(found)
}

// TestArchitecture: the files, packages and identifiers that ARCHITECTURE.md names exist.
func TestArchitecture(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(harness.ModuleRoot, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := readTree(t)
	checked := 0
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		isCode := title != "Invariants" && title != "Glossary"
		if title == "Dependencies" { // what it names is not ours
			continue
		}
		for text := range strings.SplitSeq(block.ReplaceAllString(section, "\x00$1"), "\x00") {
			var from []string
			for _, m := range quoted.FindAllStringSubmatch(text, -1) {
				if dir := r.check(m[1], from, isCode); dir != "" {
					from = append([]string{dir}, from...)
					checked++
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d names were checked", checked)
	}
}

// TestTopLevel: Go code stands in the directories that ARCHITECTURE describes, and no other is at the top level. That of deploy only embeds files.
func TestTopLevel(t *testing.T) {
	known := []string{"bucketstore", "cmd", "e2e", "index", "remote", "series"}
	for name := range readTree(t).files {
		if top := strings.Split(name, "/")[0]; path.Ext(name) == ".go" && !slices.Contains(known, top) && name != "deploy/prometheus/files.go" {
			t.Errorf("%s is not below one of %v", name, known)
		}
	}
}
