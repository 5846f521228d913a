package fleet

import (
	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/series"
)

// Messages are values of encoding/gob, those of an answer one after another up to one with End. A later version may add fields; one that
// changes their meaning needs other paths.
const (
	openPath    = "/fleet/v1/open"
	currentPath = "/fleet/v1/current"
	indexedPath = "/fleet/v1/indexed"
)

// A target names the process that a request is for. Another one does not answer it.
type target struct {
	// Store is the identity of the store.
	Store string
	// Log is the ID of the log, and Token that of the process.
	Log, Token string
}

// An openRequest asks for the open chunks of rows of METRIC, or for rows of CURRENT that are not stored.
type openRequest struct {
	Target target
	Rows   []series.RowRange
	// Chunks are the wanted qualifiers of METRIC.
	Chunks bucketstore.FamilyRange
	// KeysOnly asks for cells without values.
	KeysOnly bool
}

// openAnswer is a part of the answer to an openRequest. Rows of all parts are in order of keys.
type openAnswer struct {
	Rows []bucketstore.Row
	End  bool
}

// An indexedRequest asks for what was indexed, and written late.
type indexedRequest struct {
	Target target
	// Since and SinceLate are the Next and NextLate of the last answer, if IsKnown.
	Since, SinceLate uint64
	IsKnown          bool
}

// indexedAnswer is a part of the answer to an indexedRequest.
type indexedAnswer struct {
	Series []index.Learned
	Late   []Late
	// Lost says that more was indexed, or written late, since than is known.
	Lost           bool
	Next, NextLate uint64
	End            bool
}
