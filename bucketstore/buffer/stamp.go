package buffer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/promtable/promtable/bucketstore/durable"
	"github.com/promtable/promtable/series"
)

// stampName is the file with the last stamp of a removed log, in decimal digits. Later
// requests have later stamps even if the clock is set back.
const stampName = "stamp"

// readStamp returns the stamp in dir, or 0.
func readStamp(dir durable.Dir) (int64, error) {
	content, err := readFile(dir, stampName)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	stamp, err := strconv.ParseInt(content, 10, 64)
	if err != nil || stamp < 0 || stamp > series.MaxTime {
		return 0, fmt.Errorf("%w: %s holds %.30q and no stamp", series.ErrCorrupt, filepath.Join(dir.Path(), stampName), content)
	}
	return stamp, nil
}

// latestStamp returns a stamp that the log has come to: that in the file, or a later one of a request in the last frame. What does not
// end as a log should is left to the replay.
func (s *dirState) latestStamp() (latest int64, err error) {
	if latest, err = readStamp(s); err != nil {
		return 0, err
	}
	for _, head := range slices.Backward(s.heads) {
		if head.empty {
			continue
		}
		stamp, err := lastStampIn(s, head.segment)
		if err != nil {
			return 0, fmt.Errorf("segment %s: %w", segmentName(head.segment), err)
		}
		if stamp > 0 {
			return max(latest, stamp), nil
		}
	}
	return latest, nil
}

// lastStampIn returns the stamp of the first request in the last frame of a segment, or 0.
func lastStampIn(dir durable.Dir, segment uint64) (stamp int64, err error) {
	file, err := openSegment(dir, segment)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	if _, err := file.start(); err != nil {
		return 0, err
	}
	for !file.atEnd() {
		body, err := file.frame()
		if errors.Is(err, series.ErrCorrupt) {
			break
		}
		if err != nil {
			return 0, err
		}
		if n, size := binary.Uvarint(body); size > 0 {
			stamp = int64(n)
		}
	}
	return stamp, nil
}

// writeStamp makes stamp durable in dir.
func writeStamp(dir durable.Dir, stamp int64) error {
	return durable.WriteFile(dir, stampName, strconv.AppendInt(nil, stamp, 10))
}
