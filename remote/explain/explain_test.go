package explain_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/remotetest"
)

func TestExplain(t *testing.T) {
	const now = 1_700_000_000_000
	params := func(pairs ...string) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return v
	}
	for _, test := range []struct {
		name       string
		params     url.Values
		err        error
		status     int
		errorType  string
		text       string
		n          int
		mint, maxt int64
	}{
		{name: "defaults", params: params("match[]", "up"), status: 200, n: 1, mint: now - 3_600_000, maxt: now},
		{name: "two selectors", params: params("match[]", "up", "match[]", `{job="a"}`), status: 200, n: 2, mint: now - 3_600_000, maxt: now},
		{name: "seconds", params: params("match[]", "up", "start", "1.5", "end", "2.0005"), status: 200, n: 1, mint: 1500, maxt: 2001},
		{name: "negative", params: params("match[]", "up", "start", "-1e9", "end", "0"), status: 200, n: 1, mint: -1e12, maxt: 0},
		{name: "RFC 3339", params: params("match[]", "up", "start", "2023-11-14T22:13:20Z", "end", "2023-11-14T23:13:20.001+00:00"), status: 200, n: 1, mint: now, maxt: now + 3_600_001},
		{name: "start before an end given", params: params("match[]", "up", "end", "7200"), status: 200, n: 1, mint: 3_600_000, maxt: 7_200_000},
		{name: "no match[]", params: params("start", "1"), status: 400, errorType: "bad_data", text: "no match[] parameter"},
		{name: "bad match[]", params: params("match[]", "{"), status: 400, errorType: "bad_data", text: `invalid parameter "match[]"`},
		{name: "match[] beyond a limit", params: params("match[]", "{"+strings.Repeat("a='b',", 10_001)+"}"), status: 400, errorType: "bad_data", text: "10000 matchers"},
		{name: "bad start", params: params("match[]", "up", "start", "yesterday"), status: 400, errorType: "bad_data", text: `invalid parameter "start"`},
		{name: "NaN", params: params("match[]", "up", "end", "NaN"), status: 400, errorType: "bad_data", text: `invalid parameter "end"`},
		{name: "too far", params: params("match[]", "up", "end", "1e300"), status: 400, errorType: "bad_data", text: `invalid parameter "end"`},
		{name: "start after end", params: params("match[]", "up", "start", "2", "end", "1"), status: 400, errorType: "bad_data", text: "before the start"},
		{name: "limit", params: params("match[]", "up"), err: reader.ErrLimit, status: 400, errorType: "bad_data", text: reader.ErrLimit.Error()},
		{name: "store", params: params("match[]", "up"), err: remotetest.ErrStore, status: 503, errorType: "unavailable", text: remotetest.ErrStore.Error()},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(test.name+"/"+method, func(t *testing.T) {
				eng := &remotetest.Engine{OnExplain: func(context.Context, reader.Query) error { return test.err }}
				base, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.Now = func() time.Time { return time.UnixMilli(now) } })
				target, header, body := base+"/api/v1/explain?"+test.params.Encode(), http.Header{}, ""
				if method == http.MethodPost {
					target, body = base+"/api/v1/explain", test.params.Encode()
					header.Set("Content-Type", "application/x-www-form-urlencoded")
				}
				got := remotetest.Send(t, method, target, header, []byte(body))
				got.WantStatus(t, test.status)
				var e remotetest.Explained
				if err := json.Unmarshal([]byte(got.Body), &e); err != nil {
					t.Fatalf("%v: %s", err, got.Body)
				}
				if e.ErrorType != test.errorType || !strings.Contains(e.Error, test.text) || len(e.Data) != test.n || (e.Status == "success") != (test.status == 200) {
					t.Errorf("answer %s", got.Body)
				}
				for _, x := range e.Data {
					if x.Mint != test.mint || x.Maxt != test.maxt {
						t.Errorf("range [%d, %d], want [%d, %d]", x.Mint, x.Maxt, test.mint, test.maxt)
					}
				}
				if contentType := got.Header.Get("Content-Type"); contentType != "application/json" {
					t.Errorf("content type %q", contentType)
				}
			})
		}
	}
}

// TestExplainSelector: the engine gets the matchers of the selector.
func TestExplainSelector(t *testing.T) {
	var got string
	eng := &remotetest.Engine{OnExplain: func(_ context.Context, q reader.Query) error {
		for _, m := range q.Matchers {
			got += m.String() + ";"
		}
		return nil
	}}
	base, _ := remotetest.Serve(t, eng, nil)
	remotetest.Send(t, http.MethodGet, base+"/api/v1/explain?"+url.Values{"match[]": {`up{job!~"a|b"}`}}.Encode(), nil, nil).WantStatus(t, 200)
	if want := `job!~"a|b";` + labels.MustNewMatcher(labels.MatchEqual, "__name__", "up").String() + ";"; got != want {
		t.Errorf("matchers %s, want %s", got, want)
	}
}
