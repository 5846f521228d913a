package buffer

import (
	"errors"
	"os"
	"syscall"

	"github.com/promtable/promtable/bucketstore/durable"
)

// isNoSpace says whether err comes from a disk or a quota that is full.
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isUnwritable says whether err is for want of permission, or of a disk that can be written
// to.
func isUnwritable(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// A refusal is why requests were not written although the log works. It is as it was
// before, and the next request may succeed.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// refuseIfFull makes a refusal of err, the error of a write, if the disk is full, or what keeps the files is away.
func refuseIfFull(err error) error {
	if isNoSpace(err) {
		return refusal{err}
	}
	return refuseIfAway(err)
}

// refuseIfAway makes a refusal of err if what keeps the files is away. What was written may be durable then, and the next Sync
// writes it again.
func refuseIfAway(err error) error {
	if errors.Is(err, durable.ErrAway) {
		return refusal{err}
	}
	return err
}

// isRefusal says whether err is a refusal, and nothing else.
func isRefusal(err error) bool { return errors.As(err, new(refusal)) }
