package history

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// VictoriaMetrics is a server with /api/v1/export of VictoriaMetrics, which answers with a line of JSON for each series.
type VictoriaMetrics struct {
	url    string
	sel    Selection
	client *http.Client
}

// NewVictoriaMetrics returns the server at a URL, such as http://localhost:8428.
func NewVictoriaMetrics(s Server, sel Selection) (*VictoriaMetrics, error) {
	client, err := s.Client(readTimeout)
	return &VictoriaMetrics{strings.TrimSuffix(s.URL, "/") + "/api/v1/export", sel, client}, err
}

// Parallel implements Source.
func (*VictoriaMetrics) Parallel() bool { return true }

// Close implements Source.
func (v *VictoriaMetrics) Close() error {
	v.client.CloseIdleConnections()
	return nil
}

// Units implements Source.
func (v *VictoriaMetrics) Units(_ context.Context, rolled int64) ([]Unit, []error, error) {
	return unitsOf(v.sel, grid{rolled, UnitSpan})
}

// Open implements Source.
func (v *VictoriaMetrics) Open(ctx context.Context, u Unit) (*Reading, error) {
	params := url.Values{"start": {strconv.FormatInt(u.Start, 10)}, "end": {strconv.FormatInt(u.Limit-1, 10)}}
	for _, ms := range v.sel.named() {
		texts := make([]string, len(ms))
		for i, m := range ms {
			texts[i] = m.String()
		}
		params.Add("match[]", "{"+strings.Join(texts, ",")+"}")
	}
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.url, strings.NewReader(params.Encode()))
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := v.client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // the status tells enough
		resp.Body.Close()
		err = fmt.Errorf("%s: %s: %s", req.URL.Redacted(), resp.Status, bytes.TrimSpace(text))
	}
	if err != nil {
		cancel()
		return nil, &Temporary{err}
	}
	set := &exportSet{lines: bufio.NewReaderSize(resp.Body, 1<<20)}
	return &Reading{ChunkSeriesSet: set, Close: func() error {
		cancel()
		return resp.Body.Close()
	}}, nil
}

// An exportSet reads the lines of an export.
type exportSet struct {
	storage.ChunkSeriesSet
	lines *bufio.Reader
	at    *listSeries
	err   error
}

// exported is a line.
type exported struct {
	Metric     map[string]string `json:"metric"`
	Values     []exportedValue   `json:"values"`
	Timestamps []int64           `json:"timestamps"`
}

// exportedValue is a value as VictoriaMetrics writes it. It stores no NaN but staleness markers, and writes them as null.
type exportedValue float64

// UnmarshalJSON implements json.Unmarshaler.
func (v *exportedValue) UnmarshalJSON(text []byte) error {
	switch s := strings.Trim(string(text), `"`); s {
	case "null", "NaN":
		*v = exportedValue(math.Float64frombits(value.StaleNaN))
	case "Infinity":
		*v = exportedValue(math.Inf(1))
	case "-Infinity":
		*v = exportedValue(math.Inf(-1))
	default:
		f, err := strconv.ParseFloat(s, 64)
		*v = exportedValue(f)
		return err
	}
	return nil
}

func (s *exportSet) Next() bool {
	line, err := s.lines.ReadBytes('\n')
	if line = bytes.TrimSpace(line); len(line) == 0 {
		if err == nil {
			return s.Next()
		}
		if !errors.Is(err, io.EOF) {
			s.err = &Temporary{err}
		}
		return false
	}
	var e exported
	if err := json.Unmarshal(line, &e); err != nil { // also a line that is cut off
		s.err = &Temporary{fmt.Errorf("line of an export: %w", err)}
		return false
	}
	if s.at, s.err = e.series(); s.err != nil {
		return false
	}
	return true
}

// series returns the series of a line.
func (e *exported) series() (*listSeries, error) {
	if len(e.Values) != len(e.Timestamps) {
		return nil, fmt.Errorf("series %v of an export has %d values and %d timestamps", e.Metric, len(e.Values), len(e.Timestamps))
	}
	s := textSeries{labels: labels.FromMap(e.Metric), times: e.Timestamps}
	for _, v := range e.Values {
		s.values = append(s.values, float64(v))
	}
	s.sort()
	return s.list(0, len(s.times)), nil
}

func (s *exportSet) At() storage.ChunkSeries { return s.at }

func (s *exportSet) Err() error { return s.err }
