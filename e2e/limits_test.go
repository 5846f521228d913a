package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestReadLimits asks for more than the adapter may answer. It must refuse, or
// break the answer off: never end it as if it were whole.
func TestReadLimits(t *testing.T) {
	for _, tt := range []struct {
		flag string
		want string // in the message of a refusal
		only []answer
	}{
		{"--read.max-series=9", "9", answers()},
		{"--read.max-samples=4999", "4999", answers()},
		{"--read.max-frame-bytes=1000", "1000", []answer{streamed}},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			a := startAdapter(t, embedded(t), tt.flag)
			now := nowMillis()
			var request []sentSeries
			for i := range 10 {
				s := sentSeries{labels: []string{"__name__", "limited", "series", fmt.Sprint(i)}}
				for j := range int64(500) {
					s.points = append(s.points, at(now-j, 1/float64(j)))
				}
				request = append(request, s)
			}
			remoteWrite2().mustSend(t, a.url("/write"), request...)
			for _, as := range tt.only {
				_, err := read(a.url("/read"), as, query{0, math.MaxInt64, mustMatchers(t, "__name__", "=", "limited")})
				switch {
				case err == nil:
					t.Errorf("%v: an answer over the limit", as)
				case strings.Contains(err.Error(), "400 Bad Request"):
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%v: %v, without the limit", as, err)
					}
				case as == samples || tt.flag == "--read.max-series=9":
					t.Errorf("%v: %v, want a 400", as, err)
				}
			}
			a.terminate(t)
		})
	}
}
