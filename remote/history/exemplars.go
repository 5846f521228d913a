package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang/snappy"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
)

const (
	// mostExemplars is about how many exemplars are held at once, and sentExemplars how many one request sends.
	mostExemplars = 20_000
	sentExemplars = 1000
	// shortestSpan is a span that is not divided, in milliseconds.
	shortestSpan = 1000
)

// An ExemplarServer answers queries of exemplars, and takes them by remote write.
type ExemplarServer struct {
	client *http.Client
	url    *url.URL
}

// NewExemplarServer returns the server with this URL, below which its API is.
func NewExemplarServer(s Server) (*ExemplarServer, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	client, err := s.Client(5 * time.Minute)
	return &ExemplarServer{client, u}, err
}

// read returns the exemplars of a selector from mint to maxt, in milliseconds and inclusive: with a limit above 0 no more, if the server knows limits, and how many there are, which is -1
// if it does not.
func (s *ExemplarServer) read(ctx context.Context, selector string, mint, maxt int64, limit int) (all []v1.ExemplarQueryResult, found int, err error) {
	seconds := func(t int64) string { return strconv.FormatFloat(float64(t)/1000, 'f', 3, 64) }
	form := url.Values{"query": {selector}, "start": {seconds(mint)}, "end": {seconds(maxt)}}
	if limit > 0 {
		form.Set("limit", strconv.Itoa(limit))
	}
	header, body, err := s.post(ctx, "/api/v1/query_exemplars", "application/x-www-form-urlencoded", nil, []byte(form.Encode()))
	if err != nil {
		return nil, 0, err
	}
	var answer struct{ Data []v1.ExemplarQueryResult }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", s.url.Redacted(), err)
	}
	if found, err = strconv.Atoi(header.Get("X-Promtable-Exemplars")); err != nil {
		found = -1
	}
	return answer.Data, found, nil
}

// write stores exemplars.
func (s *ExemplarServer) write(ctx context.Context, all []v1.ExemplarQueryResult) error {
	var req prompb.WriteRequest
	for _, of := range all {
		series := prompb.TimeSeries{Labels: labelPairs(of.SeriesLabels)}
		for _, x := range of.Exemplars {
			series.Exemplars = append(series.Exemplars, prompb.Exemplar{Labels: labelPairs(x.Labels), Value: float64(x.Value), Timestamp: int64(x.Timestamp)})
		}
		req.Timeseries = append(req.Timeseries, series)
	}
	body, err := req.Marshal()
	if err != nil {
		return err
	}
	header := http.Header{"Content-Encoding": {"snappy"}, "X-Prometheus-Remote-Write-Version": {"0.1.0"}}
	_, _, err = s.post(ctx, "/api/v1/write", "application/x-protobuf", header, snappy.Encode(nil, body))
	return err
}

// labelPairs returns the labels of a set, sorted, as a request has them.
func labelPairs(set model.LabelSet) (pairs []prompb.Label) {
	for name, value := range set {
		pairs = append(pairs, prompb.Label{Name: string(name), Value: string(value)})
	}
	slices.SortFunc(pairs, func(a, b prompb.Label) int { return strings.Compare(a.Name, b.Name) })
	return pairs
}

// post sends a request and returns the answer, which is a success.
func (s *ExemplarServer) post(ctx context.Context, path, kind string, header http.Header, body []byte) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Content-Type", kind)
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", req.URL.Redacted(), err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, nil, fmt.Errorf("%s: %s: %.500s", req.URL.Redacted(), resp.Status, bytes.TrimSpace(text))
	}
	return resp.Header, text, nil
}

// An ExemplarTarget takes exemplars.
type ExemplarTarget func(ctx context.Context, all []v1.ExemplarQueryResult) error

// Target returns what stores exemplars in s, and wants to find them there.
func (s *ExemplarServer) Target() ExemplarTarget {
	return func(ctx context.Context, all []v1.ExemplarQueryResult) error {
		for _, part := range split(all, sentExemplars) {
			if err := s.write(ctx, part); err != nil {
				return err
			}
		}
		return s.compare(ctx, all)
	}
}

// split divides exemplars into parts of at most n.
func split(all []v1.ExemplarQueryResult, n int) (parts [][]v1.ExemplarQueryResult) {
	var part []v1.ExemplarQueryResult
	room := n
	for _, of := range all {
		for some := range slices.Chunk(of.Exemplars, n) {
			if len(some) > room {
				parts, part, room = append(parts, part), nil, n
			}
			part = append(part, v1.ExemplarQueryResult{SeriesLabels: of.SeriesLabels, Exemplars: some})
			room -= len(some)
		}
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}

// compare returns an error if some of these exemplars are not in s.
func (s *ExemplarServer) compare(ctx context.Context, all []v1.ExemplarQueryResult) error {
	missing := make(map[string]bool)
	mint, maxt := int64(math.MaxInt64), int64(math.MinInt64)
	eachExemplar(all, func(of model.LabelSet, x v1.Exemplar) {
		missing[exemplarText(of, x)] = true
		mint, maxt = min(mint, int64(x.Timestamp)), max(maxt, int64(x.Timestamp))
	})
	var names []string
	for _, of := range all {
		names = append(names, string(of.SeriesLabels[model.MetricNameLabel]))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		there, _, err := s.read(ctx, fmt.Sprintf("{__name__=%q}", name), mint, maxt, 0)
		if err != nil {
			return fmt.Errorf("compare: %w", err)
		}
		eachExemplar(there, func(of model.LabelSet, x v1.Exemplar) { delete(missing, exemplarText(of, x)) })
	}
	for text := range missing {
		return fmt.Errorf("%d exemplars that were sent are not there, one is %s", len(missing), text)
	}
	return nil
}

func eachExemplar(all []v1.ExemplarQueryResult, fn func(of model.LabelSet, x v1.Exemplar)) {
	for _, of := range all {
		for _, x := range of.Exemplars {
			fn(of.SeriesLabels, x)
		}
	}
}

func exemplarText(of model.LabelSet, x v1.Exemplar) string {
	return fmt.Sprintf("%s %s %016x at %d ms", of, x.Labels, math.Float64bits(float64(x.Value)), int64(x.Timestamp))
}

// Copy gives the exemplars of a selector from mint to maxt, in milliseconds and inclusive, to a target, in order of time, in parts that are small if the server is an adapter. It returns
// how many there were.
func (s *ExemplarServer) Copy(ctx context.Context, selector string, mint, maxt int64, to ExemplarTarget) (n int, err error) {
	_, found, err := s.read(ctx, selector, mint, maxt, 1)
	if err != nil || found == 0 {
		return 0, err
	}
	if found > mostExemplars && maxt-mint > shortestSpan {
		middle := mint + (maxt-mint)/2
		if n, err = s.Copy(ctx, selector, mint, middle, to); err != nil {
			return n, err
		}
		more, err := s.Copy(ctx, selector, middle+1, maxt, to)
		return n + more, err
	}
	all, _, err := s.read(ctx, selector, mint, maxt, 0)
	if err != nil {
		return 0, err
	}
	eachExemplar(all, func(model.LabelSet, v1.Exemplar) { n++ })
	if n == 0 {
		return 0, nil
	}
	return n, to(ctx, all)
}

// WriteExemplars returns a target that writes JSON, a line for each series and part of the time.
func WriteExemplars(w io.Writer) ExemplarTarget {
	encoder := json.NewEncoder(w)
	return func(_ context.Context, all []v1.ExemplarQueryResult) error {
		for _, of := range all {
			if err := encoder.Encode(of); err != nil {
				return err
			}
		}
		return nil
	}
}

// CopyExemplarFile gives what WriteExemplars has written to a target, and returns how many exemplars there were.
func CopyExemplarFile(ctx context.Context, r io.Reader, to ExemplarTarget) (n int, err error) {
	decoder := json.NewDecoder(r)
	var part []v1.ExemplarQueryResult
	held := 0
	flush := func() error {
		if err := to(ctx, part); err != nil {
			return err
		}
		part, n, held = part[:0], n+held, 0
		return nil
	}
	for line := 1; ; line++ {
		var of v1.ExemplarQueryResult
		switch err := decoder.Decode(&of); {
		case errors.Is(err, io.EOF) && held > 0:
			err := flush() // which changes n
			return n, err
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("line %d: %w", line, err)
		case len(of.SeriesLabels) == 0 || len(of.Exemplars) == 0:
			return n, fmt.Errorf("line %d: it has no seriesLabels, or no exemplars", line)
		}
		part, held = append(part, of), held+len(of.Exemplars)
		if held >= sentExemplars {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
}
