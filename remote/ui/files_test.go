package ui_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestGzip wants each file to be compressed for a client that takes it so, with a tag of its own.
func TestGzip(t *testing.T) {
	h := startPage(t)
	for target, want := range targets(t) {
		plain, small := get(h, target), get(h, target, "Accept-Encoding", "gzip, deflate, br, zstd")
		if small.Code != http.StatusOK || !bytes.Equal(plain.Body.Bytes(), want) || plain.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s: %d, and plain %d bytes, %v", target, small.Code, plain.Body.Len(), plain.Header())
		}
		if small.Header().Get("Content-Encoding") != "gzip" {
			if len(want) > 400 {
				t.Errorf("%s, of %d bytes, is not compressed", target, len(want))
			}
			continue
		}
		r, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes behind gzip, want %d: %v", target, len(got), len(want), err)
		}
		tag := small.Header().Get("ETag")
		if tag == plain.Header().Get("ETag") || plain.Header().Get("Vary") != "Accept-Encoding" || small.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: headers are %v, and %v", target, plain.Header(), small.Header())
		}
		if got, want := small.Header().Get("Content-Type"), plain.Header().Get("Content-Type"); got != want {
			t.Errorf("%s: its type is %q, and plain %q", target, got, want)
		}
		if again := get(h, target, "Accept-Encoding", "gzip", "If-None-Match", tag); again.Code != http.StatusNotModified {
			t.Errorf("%s asked again with %s: %d", target, tag, again.Code)
		}
		if other := get(h, target, "If-None-Match", tag); other.Code != http.StatusOK {
			t.Errorf("%s asked without gzip, with the tag of it: %d", target, other.Code)
		}
	}
}

func TestAcceptEncoding(t *testing.T) {
	h := startPage(t)
	for header, want := range map[string]string{
		"gzip": "gzip", "GZIP": "gzip", "br, gzip;q=0.5": "gzip", "*": "gzip", "br;q=1, *;q=0.1": "gzip",
		"br": "", "gzip;q=0": "", "gzip; q=0.0, *": "", "identity": "", "*;q=0": "", "gzip;q=many": "", "gzipped": "",
	} {
		if got := get(h, "/", "Accept-Encoding", header).Header().Get("Content-Encoding"); got != want {
			t.Errorf("%q is answered in %q, want %q", header, got, want)
		}
	}
}

// TestWeight bounds what the first view loads over a network.
func TestWeight(t *testing.T) {
	const most = 300_000
	h := startPage(t)
	reference := regexp.MustCompile(`(?:src|href)="([^"#?][^"]*)"|(?m)^\s*(?:import|export)\b[^"\n]*"([^"]+)"`)
	sizes, sum := map[string]int{}, 0
	var load func(target string)
	load = func(target string) {
		if _, ok := sizes[target]; ok {
			return
		}
		w := get(h, target, "Accept-Encoding", "gzip")
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", target, w.Code)
		}
		sizes[target] = w.Body.Len()
		sum += w.Body.Len()
		if strings.HasPrefix(target, "/ui/vendor/") { // in one file each
			return
		}
		for _, m := range reference.FindAllStringSubmatch(get(h, target).Body.String(), -1) {
			load(path.Join(path.Dir(target), m[1]+m[2]))
		}
	}
	load("/")
	t.Logf("%d files of %d bytes: %v", len(sizes), sum, sizes)
	if len(sizes) < 15 || sum < 30_000 || sum > most {
		t.Errorf("the first view loads %d files of %d bytes, want at most %d: %v", len(sizes), sum, most, sizes)
	}
}

// TestPreloads wants the page to name each module once: the browser asks for all of them at once then.
func TestPreloads(t *testing.T) {
	page := get(startPage(t), "/").Body.String()
	for name := range files(t) {
		link, want := `<link rel="modulepreload" href="ui/`+name+`">`, 0
		if path.Ext(name) == ".js" && strings.Contains(name, "/") && !strings.HasPrefix(name, "vendor/") {
			want = 1
		}
		if got := strings.Count(page, link); got != want {
			t.Errorf("the page has %s %d times, want %d", link, got, want)
		}
	}
}
