package buffer_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
)

// TestUnwritable: the error about a directory that cannot be written to says so, and names
// no other process. A log on a read-only file system is checked, but not repaired.
func TestUnwritable(t *testing.T) {
	for name, tt := range map[string]struct {
		err       error
		isChecked bool
	}{
		"no permission":        {err: syscall.EACCES},
		"not permitted":        {err: syscall.EPERM},
		"a read-only disk":     {err: syscall.EROFS, isChecked: true},
		"a disk that is full":  {err: syscall.ENOSPC},
		"a quota that is used": {err: syscall.EDQUOT},
	} {
		t.Run(name, func(t *testing.T) {
			dir := buffer.NewMemDir()
			now := time.UnixMilli(someTime)
			log, err := buffer.OpenMemDir(dir, now)
			if err == nil {
				err = log.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			dir.SetFault(func(_ int, what string) buffer.Fault {
				if strings.HasPrefix(what, "make") || strings.HasPrefix(what, "close") { // these change nothing
					return buffer.Fault{}
				}
				return buffer.Fault{Err: tt.err}
			})
			notes := ""
			check := func(repair bool) error {
				return buffer.CheckMemDir(t.Context(), dir, buffer.CheckConfig{
					Repair: repair,
					Report: func(f bucketstore.Finding) { t.Errorf("found %+v", f) },
					Note:   func(_, what string) { notes += what },
				})
			}
			_, openErr := buffer.OpenMemDir(dir, now)
			want := "is not writable by this process: "
			if tt.err == syscall.ENOSPC || tt.err == syscall.EDQUOT {
				want = "lock the log in "
			}
			for what, err := range map[string]error{"open": openErr, "repair": check(true), "check": check(false)} {
				switch {
				case what == "check" && tt.isChecked:
					if err != nil || !strings.Contains(notes, "without a lock") {
						t.Errorf("check: %v, with the notes %q", err, notes)
					}
				case err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), tt.err.Error()):
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
