package ingest

import (
	"fmt"
	"strings"
)

// Reason says why a sample was rejected. There is a counter for each.
type Reason string

// The reasons.
const (
	ReasonLabels     Reason = "labels"
	ReasonKeyTooLong Reason = "key_too_long"
	ReasonTime       Reason = "time_out_of_range"
	ReasonFuture     Reason = "too_far_in_future"
	ReasonOld        Reason = "older_than_retention"
	ReasonHistogram  Reason = "invalid_histogram"
	ReasonExemplar   Reason = "invalid_exemplar"
	ReasonMetadata   Reason = "invalid_metadata"
	ReasonMalformed  Reason = "malformed"
	// ReasonLimit is that a limit of the tenant does not allow the series.
	ReasonLimit Reason = "over_limit"
	// ReasonRefused is that the store refuses the row, while it takes others.
	ReasonRefused Reason = "refused_by_store"
)

// maxRejectedText bounds the text of the first errors in bytes: senders read
// no more than 1,024 bytes of an answer.
const maxRejectedText = 900

// Rejected collects the samples of a write that can never be stored. The zero value
// is empty. It is an error for the sender, which must not repeat the write.
// Not safe for concurrent use.
type Rejected struct {
	// Samples counts samples, histograms, exemplars and entries of metadata by
	// reason.
	Samples map[Reason]int

	errors int
	text   strings.Builder
	// full is set once an error did not fit into text. Later errors are not formatted.
	full bool
}

// Add counts n samples that were rejected because of err, which names the series. n
// may be 0, for something that has no samples. Add calls err.Error only while errors
// fit into an answer: later ones cost no formatting.
func (r *Rejected) Add(reason Reason, n int, err error) {
	if r.Samples == nil {
		r.Samples = make(map[Reason]int)
	}
	r.Samples[reason] += n
	r.errors++
	if r.full {
		return
	}
	msg := err.Error()
	if r.full = r.text.Len() > 0 && r.text.Len()+len(msg) >= maxRejectedText; r.full {
		return
	}
	if r.text.Len() > 0 {
		r.text.WriteString("; ")
	}
	r.text.WriteString(msg)
}

// Err returns nil if nothing was rejected, else an error that is a *Rejected.
func (r *Rejected) Err() error {
	if r == nil || r.errors == 0 {
		return nil
	}
	return r
}

// Error says the first errors and how many there were.
func (r *Rejected) Error() string {
	if r.errors == 1 {
		return r.text.String()
	}
	return fmt.Sprintf("%d errors: %s", r.errors, r.text.String())
}
