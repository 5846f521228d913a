package bucketstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series/rollup"
)

func TestTables(t *testing.T) {
	tests := []struct {
		name string
		kept bucketstore.Retention
		want string
	}{
		{"for ever", bucketstore.Retention{}, "METRIC 1h=0s 5m=0s c=0s d=0s+ e=0s l=0s r0=0s r1=0s r2=0s r3=0s; CURRENT v=1200h0m0s; INDEX i=0s; META m=0s"},
		{"a day", bucketstore.KeepAll(24 * time.Hour), "METRIC 1h=24h0m0s 5m=24h0m0s c=24h0m0s d=24h0m0s+ e=24h0m0s l=24h0m0s r0=24h0m0s r1=24h0m0s r2=24h0m0s r3=24h0m0s; CURRENT v=24h0m0s; INDEX i=24h0m0s; META m=0s"},
		{"longer and longer", bucketstore.Retention{3 * time.Hour, 5000 * time.Hour, 9000 * time.Hour}, "METRIC 1h=9000h0m0s 5m=5000h0m0s c=3h0m0s d=3h0m0s+ e=3h0m0s l=3h0m0s r0=3h0m0s r1=3h0m0s r2=3h0m0s r3=3h0m0s; CURRENT v=3h0m0s; INDEX i=9000h0m0s; META m=0s"},
		{"one for ever", bucketstore.Retention{rollup.Raw: 9000 * time.Hour}, "METRIC 1h=0s 5m=0s c=9000h0m0s d=9000h0m0s+ e=9000h0m0s l=9000h0m0s r0=9000h0m0s r1=9000h0m0s r2=9000h0m0s r3=9000h0m0s; CURRENT v=1200h0m0s; INDEX i=0s; META m=0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var texts []string
			for i, spec := range bucketstore.Tables(tt.kept) {
				if spec.Table != bucketstore.Table(i) {
					t.Errorf("table %d is %s", i, spec.Table)
				}
				text := spec.Table.String()
				for _, f := range spec.Families {
					text += fmt.Sprintf(" %s=%s", f.Name, f.MaxAge)
					if f.Sum {
						text += "+"
					}
				}
				texts = append(texts, text)
			}
			if got := strings.Join(texts, "; "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	if got := bucketstore.NumTables.String(); got != "UNKNOWN" {
		t.Errorf("a table that does not exist is called %s", got)
	}
}

func TestRowsErrorNamesTheFirst(t *testing.T) {
	err := &bucketstore.RowsError{Failed: map[int]error{7: fmt.Errorf("seven"), 3: fmt.Errorf("three"), 12: fmt.Errorf("twelve")}}
	if got, want := err.Error(), "3 rows not stored, the first at position 3: three"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
