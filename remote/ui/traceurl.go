package ui

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
)

// placeholder is the name of a label in the URL of a trace.
var placeholder = regexp.MustCompile(`\{([^{}]*)\}`)

// CheckTraceURL returns an error unless text is what Config.TraceURL may be.
func CheckTraceURL(text string) error {
	names := placeholder.FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		return errors.New("give the name of the label of exemplars that has the trace in braces, such as https://traces.example/trace/{trace_id}")
	}
	for _, name := range names {
		if !model.UTF8Validation.IsValidLabelName(name[1]) {
			return fmt.Errorf("{%s} names no label", name[1])
		}
	}
	plain := placeholder.ReplaceAllString(text, "x")
	if strings.ContainsAny(plain, "{}") {
		return errors.New("a brace is not closed, or not opened")
	}
	u, err := url.Parse(plain)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("give a URL that begins with https:// or http:// and the name of a host")
	}
	if host, _, _ := strings.Cut(text[len(u.Scheme+"://"):], "/"); strings.Contains(host, "{") {
		return errors.New("a label cannot be in the name of the host: samples would say where a link leads")
	}
	return nil
}
