package queries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-kit/log"
)

// TestBlockFile: the rules are those of the file, also when it has changed, and its state says what is wrong with it.
func TestBlockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("= up\n=~ (")
	if _, err := OpenBlockFile(path, log.NewNopLogger(), nil); err == nil || !strings.HasPrefix(err.Error(), "file "+path+", line 2: ") {
		t.Errorf("of a wrong file: %v", err)
	}
	write("= up")
	f, err := OpenBlockFile(path, log.NewNopLogger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := func(blocked, allowed, failure string) {
		t.Helper()
		f.Reload()
		if f.blocks([]string{blocked}) == nil || f.blocks([]string{allowed}) != nil {
			t.Errorf("the rules are %+v", f.State())
		}
		if got := f.State().Error; !strings.Contains(got, failure) || (got == "") != (failure == "") {
			t.Errorf("the error is %q", got)
		}
	}
	want("up", "down", "")
	write("= down\n= other")
	want("down", "up", "")
	write("= up\nup")
	want("down", "up", "line 2: it is no rule")
	write("")
	f.Reload()
	if s := f.State(); len(s.Rules) > 0 || s.Rules == nil || s.File != path {
		t.Errorf("of an empty file: %+v", s)
	}
}
