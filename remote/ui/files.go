package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// A file of the page, as it is and compressed by gzip. Each has an entity tag of its own.
type file struct {
	content, compressed []byte // compressed is nil if it would save nothing
	tag, compressedTag  string
	kind                string // the type of the content
}

// readFiles returns the files by their paths.
func readFiles(files fs.FS) (map[string]file, error) {
	all := make(map[string]file)
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		all[name], err = newFile(name, content)
		return err
	})
	return all, err
}

func newFile(name string, content []byte) (file, error) {
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:16])
	f := file{content: content, tag: `"` + hash + `"`, compressedTag: `"` + hash + `-gzip"`, kind: mime.TypeByExtension(path.Ext(name))}
	if f.kind == "" {
		f.kind = http.DetectContentType(content)
	}
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if small.Len() < len(content) {
		f.compressed = small.Bytes()
	}
	return f, err
}

// acceptsGzip says whether a client takes answers that are compressed by gzip.
func acceptsGzip(header http.Header) bool {
	accepts := false
	for _, part := range strings.Split(strings.Join(header.Values("Accept-Encoding"), ","), ",") {
		coding, parameter, _ := strings.Cut(part, ";")
		weight := 1.0
		if text, ok := strings.CutPrefix(strings.TrimSpace(parameter), "q="); ok {
			weight, _ = strconv.ParseFloat(text, 64) // 0 if it is no number
		}
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip":
			return weight > 0
		case "*":
			accepts = weight > 0
		}
	}
	return accepts
}
