package ui_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/remote/ui"
)

// startPage returns the page where the adapter serves it.
func startPage(t testing.TB) http.Handler {
	t.Helper()
	page, err := ui.New(ui.Config{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, pattern := range ui.Patterns() {
		mux.Handle(pattern, page)
	}
	return mux
}

// get asks h for target, with header names and values in turn.
func get(h http.Handler, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// files returns the files of the page by their path in the directory static.
func files(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	static := os.DirFS("static")
	err := fs.WalkDir(static, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[name], err = fs.ReadFile(static, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d files", len(all))
	}
	return all
}

// targets returns where each file is served.
func targets(t testing.TB) map[string][]byte {
	t.Helper()
	served := map[string][]byte{}
	for name, content := range files(t) {
		if name == "index.html" {
			content = get(startPage(t), "/").Body.Bytes() // with a link to each module
			served["/"], served["/?tab=query&expr=up"] = content, content
			continue
		}
		served["/ui/"+name] = content
	}
	return served
}

func TestFiles(t *testing.T) {
	types := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
	h := startPage(t)
	for target, want := range targets(t) {
		t.Run(target, func(t *testing.T) {
			w := get(h, target)
			if w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), want) {
				t.Fatalf("%d with %d bytes, want 200 with %d", w.Code, w.Body.Len(), len(want))
			}
			kind, ok := types[path.Ext(target)]
			switch {
			case strings.HasPrefix(target, "/ui/") && !ok:
				kind = "text/plain" // the licence
			case !ok:
				kind = "text/html"
			}
			if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, kind) {
				t.Errorf("its type is %q, want %s", got, kind)
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-cache" {
				t.Errorf("headers are %v", w.Header())
			}
			tag := w.Header().Get("ETag")
			if again := get(h, target, "If-None-Match", tag); tag == "" || again.Code != http.StatusNotModified || again.Body.Len() > 0 {
				t.Errorf("asked again with %q: %d with %d bytes", tag, again.Code, again.Body.Len())
			}
			if other := get(h, target, "If-None-Match", `"other"`); other.Code != http.StatusOK {
				t.Errorf("asked with another tag: %d", other.Code)
			}
		})
	}
}

// TestTags wants files that differ to have tags that differ.
func TestTags(t *testing.T) {
	h := startPage(t)
	seen := map[string][]byte{}
	for target, content := range targets(t) {
		tag := get(h, target).Header().Get("ETag")
		if other, ok := seen[tag]; ok && !bytes.Equal(other, content) {
			t.Errorf("%s has the tag of another file, %s", target, tag)
		}
		seen[tag] = content
	}
}

func TestPolicy(t *testing.T) {
	h := startPage(t)
	for target := range targets(t) {
		policy := get(h, target).Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"} {
			if !slices.Contains(strings.Split(policy, "; "), want) {
				t.Errorf("%s: no %s in %q", target, want, policy)
			}
		}
		for _, bad := range []string{"unsafe", "*", "http:", "https:"} {
			if strings.Contains(policy, bad) {
				t.Errorf("%s: %s in %q", target, bad, policy)
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	h := startPage(t)
	for _, target := range []string{"/ui/", "/ui/none.js", "/ui/vendor", "/ui/vendor/", "/ui/vendor/uplot/", "/ui/%2e%2e/ui.go", "/none", "/index.html"} {
		if w := get(h, target); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", target, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", w.Code)
	}
}

// importPattern matches an import of a module, and its path.
var importPattern = regexp.MustCompile(`(?m)^\s*(?:import|export)\b[^"\n]*"([^"]+)"`)

// TestReferences wants what files ask for to be served.
func TestReferences(t *testing.T) {
	served := targets(t)
	counts := map[string]int{}
	check := func(from, base string, kind string, pattern *regexp.Regexp) {
		for _, m := range pattern.FindAllSubmatch(served[from], -1) {
			counts[kind]++
			if to := path.Join(base, string(m[1])); served[to] == nil {
				t.Errorf("%s wants %s, which is not served", from, to)
			}
		}
	}
	// A link that begins with # or ? stays on the page.
	check("/", "/", "html", regexp.MustCompile(`(?:src|href)="([^"#?][^"]*)"`))
	for target := range served {
		if path.Ext(target) == ".js" {
			check(target, path.Dir(target), "js", importPattern)
		}
		if path.Ext(target) == ".css" {
			check(target, path.Dir(target), "css", regexp.MustCompile(`(?:@import|url\()\s*"?([^")]+)`))
		}
	}
	if counts["html"] < 5 || counts["js"] < 10 {
		t.Errorf("only %v references are found", counts)
	}
}

// TestImportCycles wants no module to import itself, directly or through others.
func TestImportCycles(t *testing.T) {
	all := files(t)
	done := map[string]bool{}
	var visit func(name string, importers []string)
	visit = func(name string, importers []string) {
		if i := slices.Index(importers, name); i >= 0 {
			t.Errorf("an import cycle: %s", strings.Join(append(importers[i:], name), " imports "))
			return
		}
		if done[name] {
			return
		}
		for _, m := range importPattern.FindAllSubmatch(all[name], -1) {
			visit(path.Join(path.Dir(name), string(m[1])), append(importers, name))
		}
		done[name] = true
	}
	for name := range all {
		if path.Ext(name) == ".js" && !strings.HasPrefix(name, "vendor/") {
			visit(name, nil)
		}
	}
	if !done["common/dom.js"] || !done["app.js"] {
		t.Errorf("only these modules are found: %v", done)
	}
}

// TestSize wants the page to stay small, as a proxy sends it.
func TestSize(t *testing.T) {
	const most = 320 << 10
	var sum int
	for name, content := range files(t) {
		if strings.HasPrefix(path.Base(name), "LICENSE") {
			continue // nothing asks for it
		}
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err == nil {
			_, err = w.Write(content)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		sum += packed.Len()
	}
	if sum > most {
		t.Errorf("all files have %d bytes with gzip, want at most %d", sum, most)
	}
}

// TestNothingFromElsewhere wants our own files to name no other host.
func TestNothingFromElsewhere(t *testing.T) {
	address := regexp.MustCompile(`(?i)(?:https?:)?//[a-z0-9][a-z0-9.-]*\.[a-z]{2,}[^"'\s]*|https?://`)
	for name, content := range files(t) {
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		for _, found := range address.FindAllString(string(content), -1) {
			if found != "http://www.w3.org/2000/svg" { // a name, not loaded
				t.Errorf("%s names %s", name, found)
			}
		}
	}
}

// TestVendored wants the licence of what is not ours, and the version that the
// documentation gives.
func TestVendored(t *testing.T) {
	all := files(t)
	if text := string(all["vendor/uplot/LICENSE"]); !strings.Contains(text, "MIT") || !strings.Contains(text, "Leon Sorokin") {
		t.Errorf("the licence of uPlot says %q", text)
	}
	source, err := os.ReadFile("ui.go")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`uPlot ([0-9]+\.[0-9]+\.[0-9]+), MIT`).FindSubmatch(source)
	if version == nil {
		t.Fatal("ui.go names no version of uPlot")
	}
	banner, _, _ := strings.Cut(string(all["vendor/uplot/uPlot.iife.min.js"]), "\n")
	if !strings.Contains(banner, "(v"+string(version[1])+")") {
		t.Errorf("ui.go says uPlot %s, the file %s", version[1], banner)
	}
	if banner := all["vendor/uplot/uPlot.min.css"]; !bytes.Contains(banner, []byte(".uplot")) {
		t.Error("the style sheet of uPlot is none")
	}
}

// TestEditorVendored wants the versions of the lock file in the bundle of the editor, and their licences beside it. That
// the bundle is what these versions give is a test of the page, which has npm.
func TestEditorVendored(t *testing.T) {
	text, err := os.ReadFile("editor/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Resolved, Integrity, License string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if name != "" && (!strings.HasPrefix(p.Resolved, "https://registry.npmjs.org/") || !strings.HasPrefix(p.Integrity, "sha512-")) {
			t.Errorf("%s is from %q, with the hash %q", name, p.Resolved, p.Integrity)
		}
	}
	all := files(t)
	heading, _, _ := strings.Cut(string(all["vendor/codemirror/codemirror.js"]), "\nvar ")
	bundled := regexp.MustCompile(`([@a-z][a-z0-9@/-]*) ([0-9.]+), ([A-Za-z0-9.-]+[A-Za-z0-9])(?:;|$)`).FindAllStringSubmatch(heading, -1)
	if len(bundled) < 12 {
		t.Fatalf("only %q are in the bundle: %s", bundled, heading)
	}
	for _, b := range bundled {
		p := lock.Packages["node_modules/"+b[1]]
		if p.Version != b[2] || p.License != b[3] || b[3] != "MIT" && b[3] != "Apache-2.0" {
			t.Errorf("the bundle has %q, the lock file %+v", b[0], p)
		}
		if title := b[1] + " " + b[2] + ", " + b[3] + "\n"; !bytes.Contains(all["vendor/codemirror/LICENSES"], []byte(title)) {
			t.Errorf("there is no licence of %s", title)
		}
	}
	for _, want := range []string{"Permission is hereby granted, free of charge", "Apache License\n", "TERMS AND CONDITIONS FOR USE"} {
		if !bytes.Contains(all["vendor/codemirror/LICENSES"], []byte(want)) {
			t.Errorf("the licences do not say %q", want)
		}
	}
}
