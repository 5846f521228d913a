package buffer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/promtable/promtable/series"
)

// stampName is the file with the last stamp of a removed log, in decimal digits. Later
// requests have later stamps even if the clock is set back.
const stampName = "stamp"

// readStamp returns the stamp in dir, or 0.
func readStamp(dir directory) (int64, error) {
	content, err := readFile(dir, stampName)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stamp, err := strconv.ParseInt(content, 10, 64)
	if err != nil || stamp < 0 || stamp > series.MaxTime {
		return 0, fmt.Errorf("%w: %s holds %.30q and no stamp", series.ErrCorrupt, filepath.Join(dir.path(), stampName), content)
	}
	return stamp, nil
}

// writeStamp makes stamp durable in dir.
func writeStamp(dir directory, stamp int64) error {
	return writeFile(dir, stampName, strconv.FormatInt(stamp, 10))
}
