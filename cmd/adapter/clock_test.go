package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/series"
)

// TestClockBehindAtStart: the clock of an adapter starts an hour behind a time that is in the
// log, or in META. Samples of the present are a 503, so that their sender repeats them.
func TestClockBehindAtStart(t *testing.T) {
	for _, tt := range []struct {
		name string
		// before runs an hour ahead of the clock.
		before func(t *testing.T, dir string) (args []string)
	}{
		{"buffer", func(t *testing.T, dir string) []string {
			args := []string{"--storage.path=" + dir}
			if !t.Run("the first process", func(t *testing.T) {
				startWithUsage(t, args...).send(t, time.Now(), 1, http.StatusNoContent, http.StatusOK, "")
			}) {
				t.FailNow()
			}
			moveStamp(t, filepath.Join(dir, "buffer", "stamp"), time.Hour)
			return args
		}},
		{"Bigtable without a buffer", func(t *testing.T, _ string) []string {
			t.Setenv("BIGTABLE_EMULATOR_HOST", bigtabletest.Serve(t))
			args := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
			o, err := parseFlags(args)
			if err != nil {
				t.Fatal(err)
			}
			leaveClock(t, o, time.Now().Add(time.Hour))
			return args
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := startWithUsage(t, append(tt.before(t, t.TempDir()), "--self-scrape-interval=0s")...)
			present := time.Now().Add(time.Hour)
			a.send(t, present, 2, http.StatusServiceUnavailable, http.StatusServiceUnavailable, "the adapter's clock is behind by ")
			a.send(t, present.Add(time.Hour), 2, http.StatusBadRequest, http.StatusOK, "ahead of the clock")
			a.send(t, time.Now(), 3, http.StatusNoContent, http.StatusOK, "")
		})
	}
}

// moveStamp moves the last stamp of a log that was removed, which is as if the clock were
// set back.
func moveStamp(t *testing.T, path string, d time.Duration) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stamp, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fmt.Append(nil, stamp+d.Milliseconds()), 0o640); err != nil {
		t.Fatal(err)
	}
}

// leaveClock leaves the mark of an adapter that has died.
func leaveClock(t *testing.T, o *options, at time.Time) {
	t.Helper()
	rows, err := openStore(t.Context(), o, log.NewNopLogger(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = rows.Apply(context.Background(), bucketstore.Meta, []bucketstore.Mutation{{Key: []byte(series.MetaClock), Ops: []bucketstore.Op{{
		Kind: bucketstore.SetCell, Family: series.FamilyMeta, Qualifier: []byte("another"), Time: at.UnixMilli(), Value: fmt.Appendf(nil, `{"time":%d}`, at.UnixMilli()),
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
}
