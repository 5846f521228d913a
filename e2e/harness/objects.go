package harness

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Objects is a server that speaks S3, with a bucket.
type Objects struct {
	// URL is that of the server, Bucket the name of the bucket.
	URL, Bucket string
	// fails is how many of the next uploads fail, failReads how many of the next reads of an object that is a content.
	fails, failReads atomic.Int64
	// held says that uploads of contents wait for their client to end.
	held atomic.Bool
	// Held counts the uploads that wait.
	Held atomic.Int64
}

// StartObjects starts a server.
func StartObjects(t testing.TB) *Objects {
	t.Helper()
	o := &Objects{Bucket: "backups"}
	backend := s3mem.New()
	if err := backend.CreateBucket(o.Bucket); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodPost {
			if o.held.Load() && strings.Contains(r.URL.Path, "/contents/") {
				o.Held.Add(1)
				_, _ = io.Copy(io.Discard, r.Body) // only then the end of the client is seen
				<-r.Context().Done()
				return
			}
			if o.fails.Add(-1) >= 0 {
				http.Error(w, "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>", http.StatusServiceUnavailable)
				return
			}
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/chunks/") && o.failReads.Add(-1) >= 0 {
			http.Error(w, "<Error><Code>AccessDenied</Code><Message>For a while.</Message></Error>", http.StatusForbidden) // which the client does not try again by itself
			return
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	o.URL = server.URL
	return o
}

// Fail lets the next uploads fail.
func (o *Objects) Fail(n int64) { o.fails.Store(n) }

// FailReads lets the next reads of chunks of blocks fail.
func (o *Objects) FailReads(n int64) { o.failReads.Store(n) }

// Put writes an object.
func (o *Objects) Put(t testing.TB, name string, content []byte) {
	t.Helper()
	resp, err := RoundTrip(t.Context(), http.MethodPut, o.URL+"/"+o.Bucket+"/"+name, nil, content)
	if err != nil || resp.Status != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
}

// PutDir writes the files of a directory.
func (o *Objects) PutDir(t testing.TB, dir, prefix string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		o.Put(t, prefix+"/"+filepath.ToSlash(name), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Hold lets uploads of contents wait, from now on, or no more.
func (o *Objects) Hold(held bool) { o.held.Store(held) }

// Env is the environment of a process that uses the server.
func (o *Objects) Env() []string {
	return []string{"AWS_ENDPOINT_URL=" + o.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret"}
}
