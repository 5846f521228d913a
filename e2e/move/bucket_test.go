package move

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestImportBucket: the blocks of a tenant in object storage are there after an import, through requests that fail; one that is marked to be deleted and one that is not whole
// are left out, and named. At most the blocks of a unit are on the disk, and none is left.
func TestImportBucket(t *testing.T) {
	dir, p, _, first, last := openMetrics(t, 12)
	s3 := harness.StartObjects(t)
	blocks, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil || len(blocks) < 10 {
		t.Fatalf("%d blocks, %v", len(blocks), err)
	}
	for _, meta := range blocks {
		s3.PutDir(t, filepath.Dir(meta), "mimir/tenant/"+filepath.Base(filepath.Dir(meta)))
	}
	s3.Put(t, "mimir/tenant/bucket-index.json.gz", []byte("not a block"))
	s3.Put(t, "mimir/tenant/01J00000000000000000000000/index", []byte("no meta.json yet"))
	const marked = "mimir/tenant/01J00000000000000000000001/"
	s3.Put(t, marked+"meta.json", []byte("it is removed"))
	s3.Put(t, marked+"deletion-mark.json", []byte("{}"))

	b := harness.Embedded(t)
	b.Env = s3.Env()
	work := t.TempDir()
	words := []string{"import", "blocks", "s3://" + s3.Bucket + "/mimir/tenant", "--work-dir=" + work}
	s3.FailReads(3)
	code, output := harness.RunCommand(t, b, words...)
	if code != 0 || !strings.Contains(output, "01J00000000000000000000000 has no meta.json") || strings.Count(output, "trying again") != 3 ||
		!strings.Contains(output, "block=01J00000000000000000000001") || strings.Contains(output, "damaged") {
		t.Errorf("%d\n%s", code, output)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if code, output := harness.RunCommand(t, b, words...); code != 0 || !strings.Contains(output, "nothing to do: all ") {
		t.Errorf("again: %d\n%s", code, output)
	}
	a := harness.StartAdapter(t, b)
	wantSame(t, a, p, first, last)
	a.Terminate(t)

	other := harness.Embedded(t)
	other.Env = s3.Env()
	one := filepath.Base(filepath.Dir(blocks[3]))
	mustImport(t, other, "blocks", "s3://"+s3.Bucket+"/mimir/tenant/"+one)
	for place, want := range map[string]string{"s3://" + s3.Bucket + "/mimir": "for Mimir give the directory of a tenant", "s3://nothing/x": "there are no blocks", "/nothing/there": "is no directory"} {
		if code, output := harness.RunCommand(t, other, "import", "blocks", place); code == 0 || !strings.Contains(output, want) {
			t.Errorf("%s: %d\n%s", place, code, output)
		}
	}
}
