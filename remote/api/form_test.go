package api_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"os"
	"testing"
)

// TestFormFiles: a form with a file that is too large for memory leaves nothing on the disk.
func TestFormFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f := serve(t, nil)
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "large")
	if err == nil {
		_, err = file.Write(make([]byte, 3<<20))
	}
	if err == nil {
		err = form.WriteField("query", "1")
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(f.url+"/api/v1/query", form.FormDataContentType(), &body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 || resp.StatusCode != http.StatusOK {
		t.Errorf("%s leaves %v, %v", resp.Status, left, err)
	}
}
