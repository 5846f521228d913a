package ui_test

import (
	"strings"
	"testing"

	"github.com/promtable/promtable/remote/ui"
)

func TestCheckTraceURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://traces.example/trace/{trace_id}":                            "",
		"http://localhost:16686/trace/{traceID}?span={span.id}":              "",
		"https://traces.example/explore?left=%7B%22q%22:%22{trace_id}%22%7D": "",
		"https://traces.example/":                                            "in braces",
		"https://traces.example/{}":                                          "names no label",
		"https://traces.example/{a":                                          "in braces",
		"https://traces.example/{a}}":                                        "is not closed",
		"javascript:alert({a})":                                              "begins with https://",
		"//traces.example/{a}":                                               "begins with https://",
		"https://user@traces.example/{a}":                                    "begins with https://",
		"https://{host}/{a}":                                                 "in the name of the host",
		"https://{a}":                                                        "in the name of the host",
		"https://traces.example:{port}/":                                     "invalid port",
		"https:///{a}":                                                       "begins with https://",
	} {
		err := ui.CheckTraceURL(text)
		if got := errorText(err); (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestTraceURL: the page has the URL of traces, as text.
func TestTraceURL(t *testing.T) {
	page, err := ui.New(ui.Config{TraceURL: `https://traces.example/{trace_id}?a="b"&c`})
	if err != nil {
		t.Fatal(err)
	}
	if body := get(page, "/").Body.String(); !strings.Contains(body, `<meta name="trace-url" content="https://traces.example/{trace_id}?a=&#34;b&#34;&amp;c">`) {
		t.Errorf("the page does not have the URL:\n%.2000s", body)
	}
}
