package request

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
)

// Compressed compresses the answers of next for clients that accept gzip, while they are written. An answer that is
// smaller than a packet stays as it is. It belongs inside of Begin, whose end sends what is left.
func Compressed(next http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.EnableZstd(false)) // one encoding: its writers are kept for the next answers
	if err != nil {
		panic(err) // the options above are right
	}
	return wrap(next)
}
