package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

// A scaleQuestion is a request whose answer is known from the workload.
type scaleQuestion struct {
	path   string
	params url.Values
	read   func(data []byte) (float64, error)
	want   float64
	// mayRefuse says that a refusal is an answer, too.
	mayRefuse bool
}

// questions returns label calls and queries.
func (s *scale) questions() []scaleQuestion {
	host := s.workload.Series / len(s.generator.shapes) / 2
	one := instance(host, false)
	count := func(has func(sh *shape, host int) bool) (n float64) {
		for i := range s.workload.Series {
			if h, sh := s.generator.locate(i); has(sh, h) {
				n++
			}
		}
		return n
	}
	named := func(name string) float64 { return count(func(sh *shape, _ int) bool { return sh.name == name }) }
	const most = 1000
	limit := fmt.Sprint(most)
	hosts := min(most, named("node_load1"))
	const largest = "http_request_duration_seconds_bucket"
	names := map[string]bool{}
	for _, sh := range s.generator.shapes {
		names[sh.name] = true
	}
	span := url.Values{"start": {harness.FormatSeconds(s.workload.begin() - s.workload.Interval.Milliseconds())}, "end": {harness.FormatSeconds(s.workload.End)}}
	call := func(path string, want float64, more ...string) scaleQuestion {
		q := scaleQuestion{path: "/api/v1/" + path, params: url.Values{}, read: length, want: want}
		for name := range span {
			q.params[name] = span[name]
		}
		for i := 0; i < len(more); i += 2 {
			q.params.Set(more[i], more[i+1])
		}
		return q
	}
	query := func(text string, want float64) scaleQuestion {
		return scaleQuestion{path: "/api/v1/query", params: url.Values{"query": {text}, "time": {harness.FormatSeconds(s.workload.End)}}, read: sum, want: want}
	}
	status := scaleQuestion{path: "/api/v1/status/tsdb", read: numSeries, want: float64(s.workload.Series)}
	all := query(`count({job=~".+"})`, float64(s.workload.Series))
	all.mayRefuse = true
	rates := query(`count(rate(`+largest+`[5m]))`, named(largest))
	rates.mayRefuse = true
	return []scaleQuestion{
		call("label/__name__/values", float64(len(names))),
		call("label/instance/values", hosts, "match[]", "node_load1", "limit", limit),
		call("label/instance/values", hosts, "match[]", `{job="node-exporter"}`, "limit", limit),
		call("label/handler/values", 5, "match[]", largest),
		call("series", min(most, count(func(sh *shape, _ int) bool { return !sh.app })), "match[]", `{job="node-exporter"}`, "limit", limit),
		call("series", count(func(sh *shape, h int) bool { return h == host && !sh.app }), "match[]", fmt.Sprintf("{instance=%q}", one)),
		status,
		query("sum by (job) (up)", named("up")),
		query(`count(rate(node_network_receive_bytes_total{device="eth0"}[5m]))`, count(func(sh *shape, _ int) bool {
			return sh.name == "node_network_receive_bytes_total" && labels.FromStrings(sh.labels...).Get("device") == "eth0"
		})),
		query(fmt.Sprintf("count_over_time(node_load1{instance=%q}[5m])", one), float64(s.generator.done)),
		query(fmt.Sprintf("count({instance=%q})", one), count(func(sh *shape, h int) bool { return h == host && !sh.app })),
		rates,
		all,
	}
}

// length is how many elements a list has.
func length(data []byte) (float64, error) {
	var list []json.RawMessage
	err := json.Unmarshal(data, &list)
	return float64(len(list)), err
}

// sum adds up the values of a vector.
func sum(data []byte) (total float64, err error) {
	var result struct {
		Result []struct{ Value [2]any }
	}
	err = json.Unmarshal(data, &result)
	for _, sample := range result.Result {
		text, _ := sample.Value[1].(string)
		v, parseErr := strconv.ParseFloat(text, 64)
		if parseErr != nil {
			return 0, parseErr
		}
		total += v
	}
	return total, err
}

// numSeries is that of status/tsdb.
func numSeries(data []byte) (float64, error) {
	var status struct{ HeadStats struct{ NumSeries float64 } }
	err := json.Unmarshal(data, &status)
	return status.HeadStats.NumSeries, err
}

// ask notes what each question takes, asked for the first time and once more. A wrong answer
// is an error. So is a refusal of what may not be refused, but first all is asked.
func (s *scale) ask(ctx context.Context, when string, list []scaleQuestion) error {
	s.answers.add("**"+when+"**", "", "", "", "")
	for _, q := range list {
		idle, err := resetPeak(s.server.PID())
		if err != nil {
			return err
		}
		var took [2]time.Duration
		var refusal string
		for i := range took {
			began := time.Now()
			if refusal, err = s.check(ctx, q); err != nil {
				return err
			}
			if refusal != "" && !q.mayRefuse {
				s.refused = append(s.refused, refusal)
			}
			took[i] = time.Since(began)
			if refusal != "" {
				break
			}
		}
		after, err := usageOf(s.server.PID())
		if err != nil {
			return err
		}
		name := q.path + strings.TrimSuffix(" "+q.params.Get("match[]")+q.params.Get("query"), " ")
		if limit := q.params.Get("limit"); limit != "" {
			name += ", limit " + limit
		}
		answer := strconv.FormatFloat(q.want, 'f', -1, 64)
		if refusal != "" {
			answer = "refused: " + refusal
		}
		s.answers.add("`"+name+"`", answer, digits(milliseconds(took[0])), digits(milliseconds(took[1])), megabytes(after.peak-idle))
	}
	return nil
}

// check asks, and compares the answer. It returns a refusal as text.
func (s *scale) check(ctx context.Context, q scaleQuestion) (refusal string, err error) {
	body, err := s.server.call(ctx, http.MethodGet, q.path+"?"+q.params.Encode())
	if refusal := (harness.StatusError{}); errors.As(err, &refusal) {
		return refusal.Error(), nil
	}
	if err != nil {
		return "", err
	}
	var answer struct{ Data json.RawMessage }
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", err
	}
	got, err := q.read(answer.Data)
	if err == nil && got != q.want {
		err = fmt.Errorf("%v, want %v", got, q.want)
	}
	if err != nil {
		return "", fmt.Errorf("%s %v: %w: %.200s", q.path, q.params, err, body)
	}
	return "", nil
}
