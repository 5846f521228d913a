package buffer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/promtable/promtable/series"
)

// stampName is the file with the newest stamp of a log that was removed, in
// decimal digits: later requests have later ones even if the clock is set back.
const stampName = "stamp"

// readStamp returns the stamp in dir, or 0.
func readStamp(dir string) (int64, error) {
	path := filepath.Join(dir, stampName)
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stamp, err := strconv.ParseInt(string(content), 10, 64)
	if err != nil || stamp < 0 || stamp > series.MaxTime {
		return 0, fmt.Errorf("%w: %s holds %.30q and no stamp", series.ErrCorrupt, path, content)
	}
	return stamp, nil
}

// writeStamp makes stamp durable in dir.
func writeStamp(dir string, stamp int64) error {
	path := filepath.Join(dir, stampName)
	file, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = file.WriteString(strconv.FormatInt(stamp, 10))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return fileutil.Rename(path+".new", path)
}

// makeDir makes a directory, if it is missing, with those above it, durably.
func makeDir(path string) error {
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(parent)
}

func syncDir(path string) error {
	dir, err := fileutil.OpenDir(path) // os.Open gives one that Windows cannot sync
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
