package protocol

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// TestReadLimits asks for more than the adapter may answer. It must refuse, or
// break the answer off: never end it as if it were whole.
func TestReadLimits(t *testing.T) {
	for _, tt := range []struct {
		flag string
		want string // in the message of a refusal
		only []prompb.ReadRequest_ResponseType
	}{
		{"--read.max-series=9", "9", harness.AnswerTypes()},
		{"--read.max-samples=4999", "4999", []prompb.ReadRequest_ResponseType{harness.Samples}},
		{"--read.max-frame-bytes=1000", "1000", []prompb.ReadRequest_ResponseType{harness.Streamed}},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			a := harness.StartAdapter(t, harness.Embedded(t), tt.flag)
			now := harness.NowMillis()
			var request []harness.SentSeries
			for i := range 10 {
				s := harness.SentSeries{Labels: []string{"__name__", "limited", "series", fmt.Sprint(i)}}
				for j := range int64(500) {
					s.Points = append(s.Points, harness.PointAt(now-j, 1/float64(j)))
				}
				request = append(request, s)
			}
			harness.RemoteWrite2().MustSend(t, a.URL("/write"), request...)
			for _, as := range tt.only {
				_, err := harness.Read(a.URL("/read"), as, harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "limited")})
				switch {
				case err == nil:
					t.Errorf("%v: an answer over the limit", as)
				case strings.Contains(err.Error(), "400 Bad Request"):
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%v: %v, without the limit", as, err)
					}
				case as == harness.Samples || tt.flag == "--read.max-series=9":
					t.Errorf("%v: %v, want a 400", as, err)
				}
			}
			a.Terminate(t)
		})
	}
}
