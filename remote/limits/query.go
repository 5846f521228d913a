package limits

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/remote/request"
)

// BeginQuery counts a query from one time to another, which may be zero. It returns what ends it, or an error if it may not run.
func (t *Tenant) BeginQuery(from, to time.Time) (end func(), err error) {
	l, length := t.limits(), to.Sub(from)
	if allowed := time.Duration(l.QueryAge); allowed > 0 && !from.IsZero() && t.file.now().Sub(from) > allowed && !t.exceeds(l, queryAge) {
		return nil, request.WithStatus(http.StatusUnprocessableEntity, "%sthe query begins at %s, the limit %s of --limits.file is %s",
			t.subject(), from.UTC().Format(time.RFC3339), queryAge, l.QueryAge)
	}
	if allowed := time.Duration(l.QueryLength); allowed > 0 && length > allowed && !t.exceeds(l, queryLength) {
		return nil, request.WithStatus(http.StatusUnprocessableEntity, "%sthe query asks for %s, the limit %s of --limits.file is %s",
			t.subject(), model.Duration(length), queryLength, l.QueryLength)
	}
	if n := t.queries.Add(1); l.Concurrency > 0 && n > int64(l.Concurrency) && !t.exceeds(l, concurrency) {
		t.queries.Add(-1)
		return nil, request.Later(time.Second, "%s%d queries run or wait, the limit %s of --limits.file", t.subject(), n-1, concurrency)
	}
	return func() { t.queries.Add(-1) }, nil
}

// CheckFetched says whether a query that has read so many series may read more.
func (t *Tenant) CheckFetched(series, more int64) error {
	l := t.limits()
	return t.checkSum(l, fetchedSeries, "series are read", series, more, l.FetchedSeries)
}

// CheckHeld says whether a query that holds so many bytes may hold more.
func (t *Tenant) CheckHeld(bytes, more int64) error {
	l := t.limits()
	return t.checkSum(l, heldBytes, "bytes are held", bytes, more, l.HeldBytes)
}

// BoundsAnswers says whether there is a limit of answers.
func (t *Tenant) BoundsAnswers() bool { return t.limits().AnswerBytes > 0 }

// CheckAnswer says whether an answer that has so many bytes may have more.
func (t *Tenant) CheckAnswer(bytes, more int64) error {
	l := t.limits()
	return t.checkSum(l, answerBytes, "bytes are in the answer", bytes, more, l.AnswerBytes)
}

// checkSum returns an error if a sum is above a limit. It counts the query that gets there once.
func (t *Tenant) checkSum(l *Limits, name, what string, sum, more, allowed int64) error {
	if allowed == 0 || sum+more <= allowed {
		return nil
	}
	if sum > allowed {
		if slices.Contains(l.Track, name) {
			return nil
		}
	} else if t.exceeds(l, name) {
		return nil
	}
	return fmt.Errorf("%smore than %d %s, the limit %s of --limits.file", t.subject(), allowed, what, name)
}
