package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/bucketstore/snapshot"
	"github.com/promtable/promtable/remote/export"
)

// verifySnapshot restores a snapshot to a directory of its own, which it removes, checks the store there, and compares some days of it with a running adapter.
func verifySnapshot(ctx context.Context, o *options, logger log.Logger) (err error) {
	v := &o.snapshot
	if !o.traits().OnDisk {
		return errors.New("snapshot verify is for the embedded store: for Bigtable use its own backups, see docs/bigtable.md")
	}
	if v.days < 0 || v.since <= 0 {
		return errors.New("--days is negative, or --since is not a time such as 30d")
	}
	dir, err := os.MkdirTemp(v.workDir, "verify-snapshot-")
	if err != nil {
		return fmt.Errorf("--work-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	restored := *o.forExisting()
	restored.path, restored.bufferPath = filepath.Join(dir, "data"), filepath.Join(dir, "data", snapshot.LogDir)
	from, note := v.from, func() error { return nil }
	var taken time.Time
	if isBucket(v.from) {
		b, name, closeBucket, err := o.openBucket(v.from, logger)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeBucket()) }()
		s, err := b.Find(ctx, name)
		if err != nil {
			return err
		}
		from, taken = s.Name, s.Time
		note = func() error { return b.Verified(ctx, s.Name, time.Now()) }
		if err := b.Restore(ctx, s, restored.path, restored.bufferPath, newReporter(logger).bytesCopied); err != nil {
			return err
		}
	} else {
		from = localPlace(v.from)
		if latest, err := snapshot.Latest(from); err == nil && latest != "" { // a directory of snapshots
			from = latest
		}
		m, err := snapshot.Restore(ctx, from, restored.path, restored.bufferPath, newReporter(logger).bytesCopied)
		if err != nil {
			return err
		}
		taken = m.Time
	}
	fmt.Fprintf(o.out, "%s: every file has the content of which the snapshot was taken\n", from)
	if err := checkStored(ctx, &restored, logger); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if o.snapshot.url != "" {
		if err := compareDays(ctx, &restored, taken, logger); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	if err := note(); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "verified: %s\n", from)
	return nil
}

// compareDays compares days, drawn at random, of a restored store with those of the adapter of --url.
func compareDays(ctx context.Context, restored *options, taken time.Time, logger log.Logger) (err error) {
	v := &restored.snapshot
	server, err := restored.askedAdapter(readURL(v.url), restored.tenancy.of)
	if err != nil {
		return err
	}
	running, err := remoteSource(server)
	if err != nil {
		return err
	}
	restored.exports.url = ""
	copied, _, closeCopy, err := restored.exportSource(ctx, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeCopy()) }()
	last := taken.UnixMilli()/export.Day - 1 // the last whole day
	first := taken.Add(-time.Duration(v.since)).UnixMilli() / export.Day
	compared, differ := 0, []string(nil)
	for _, n := range rand.Perm(max(0, int(last-first+1))) {
		if compared == v.days {
			break
		}
		start := (first + int64(n)) * export.Day
		sel := export.Selection{Selectors: allSeries(), Mint: start, Maxt: start + export.Day - 1}
		got, err := export.Digest(ctx, copied, sel, nil)
		if err != nil {
			return err
		}
		if len(got) == 0 {
			continue // a day without samples says little
		}
		want, err := export.Digest(ctx, running, sel, nil)
		if err != nil {
			return fmt.Errorf("--url=%s: %w", v.url, err)
		}
		compared++
		day := time.UnixMilli(start).UTC().Format(time.DateOnly)
		level.Info(logger).Log("msg", "compared a day", "day", day, "series", got[0].Series, "samples", got[0].Samples, "same", slices.Equal(got, want))
		if !slices.Equal(got, want) {
			differ = append(differ, day)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("of %d days the adapter has other samples of %q: if none were written, deleted or cut by retention since %s, use another snapshot", compared, differ, taken.Format(time.RFC3339))
	}
	fmt.Fprintf(restored.out, "%d days have the same samples as the adapter\n", compared)
	return nil
}
