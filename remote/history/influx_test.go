package history

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-kit/log"
)

// importInflux imports a text, and returns what a store has then, and what was logged.
func importInflux(t *testing.T, precision, text string) (found []string, logged string, err error) {
	t.Helper()
	var logs bytes.Buffer
	source, err := NewInflux("-", strings.NewReader(text), Precisions[precision], Selection{Mint: 0, Maxt: math.MaxInt64 - 1}, log.NewLogfmtLogger(&logs))
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	_, _, err = run(t, source, s)
	if closeErr := source.Close(); closeErr != nil {
		t.Error(closeErr)
	}
	return read(t, s), logs.String(), err
}

// TestInflux: fields become series, whatever their names, kinds, order and unit of time.
func TestInflux(t *testing.T) {
	for precision, unit := range map[string]string{"ns": "000000", "us": "000", "ms": "", "s": "-"} {
		at := func(n int64) string {
			if unit == "-" {
				return fmt.Sprint((start + n) / 1000)
			}
			return fmt.Sprint(start+n) + unit
		}
		const second = 1000
		lines := []string{
			"# a comment",
			`cpu,host=b,core=0 usage=0.5,idle=99i,up=true,state="busy
with a break",total=18446744073709551615u ` + at(2*second),
			"",
			`cpu,host=b,core=0 usage=0.25 ` + at(0), // earlier, and later in the text
			`cpu,core=0,host=b usage=1e3 ` + at(second), // the same series
			`disk\ io,path=/a\,b\=c,fs-type=ext4 value=-3,2nd=7i ` + at(0),
			`7days value=1,value=2 ` + at(0), // the last one counts
			`größe,straße=ü größe=4 ` + at(0),
		}
		got, logged, err := importInflux(t, precision, strings.Join(lines, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		base := start / 1000 * 1000
		if unit != "-" {
			base = start
		}
		want := []string{
			text(`{__name__="_7days"}`, base-start, 2),
			text(`{__name__="cpu_idle", core="0", host="b"}`, base-start+2*second, 99),
			text(`{__name__="cpu_total", core="0", host="b"}`, base-start+2*second, math.MaxUint64),
			text(`{__name__="cpu_up", core="0", host="b"}`, base-start+2*second, 1),
			text(`{__name__="cpu_usage", core="0", host="b"}`, base-start, 0.25),
			text(`{__name__="cpu_usage", core="0", host="b"}`, base-start+second, 1000),
			text(`{__name__="cpu_usage", core="0", host="b"}`, base-start+2*second, 0.5),
			text(`{__name__="disk_io", fs_type="ext4", path="/a,b=c"}`, base-start, -3),
			text(`{__name__="disk_io_2nd", fs_type="ext4", path="/a,b=c"}`, base-start, 7),
			text(`{__name__="gr____e_gr____e", stra__e="ü"}`, base-start, 4),
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %s\nwant %s", precision, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if strings.Count(logged, "fields that are texts") != 1 || !strings.Contains(logged, "fields=1 ") || !strings.Contains(logged, "cpu_state") || !strings.Contains(logged, "_7days") {
			t.Errorf("%s: logged %s", precision, logged)
		}
	}
}

// TestBadInflux: what is no line protocol, or cannot be stored, is named with where it is, and nothing is imported.
func TestBadInflux(t *testing.T) {
	good := fmt.Sprintf("a value=1 %d000000\n", start)
	for bad, want := range map[string][]string{
		"a value=1":                           {"entry 2", "no timestamp"},
		"a,b value=1 1":                       {"line 2:3"},
		"a value=1 1x":                        {"line 2:11"},
		"a value=1 99999999999999999999":      {"entry 2", "timestamp"},
		"a,x-y=1,x.y=2 value=1 1":             {"entry 2", `"x.y"`, "x_y"},
		"a,__name__=1 value=1 1":              {"entry 2", "__name__"},
		"a value=99999999999999999999i 1":     {"line 2:"},
		"CREATE DATABASE x WITH NAME autogen": {"line 2:"},
	} {
		got, _, err := importInflux(t, "ns", good+bad+"\n"+good)
		if err == nil || len(got) > 0 {
			t.Errorf("%q: %v, %v", bad, got, err)
			continue
		}
		for _, word := range append(want, "the standard input") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q: %v, want %q in it", bad, err, word)
			}
		}
	}
}
