package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// emulatorCPU returns the CPU time of the emulator, if there is one.
func (s *server) emulatorCPU() (time.Duration, error) {
	if s.emulator == nil {
		return 0, nil
	}
	return cpuOf(s.emulator.PID())
}

// noteBigtable records the emulator's CPU time for writing so many samples, since before,
// and the row mutations.
func (s *server) noteBigtable(ctx context.Context, samples float64, before time.Duration, note noter) error {
	if s.emulator == nil {
		return nil
	}
	after, err := s.emulatorCPU()
	if err != nil {
		return err
	}
	mutations, err := s.metric(ctx, "adapter_bigtable_mutations_total")
	if err != nil {
		return err
	}
	note("emulator, CPU s per M samples", (after-before).Seconds()/samples*1e6)
	note("row mutations per sample", mutations/samples)
	return nil
}

// metric returns the sum of all series of a metric of the server itself.
func (s *server) metric(ctx context.Context, name string) (float64, error) {
	text, err := s.call(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return 0, err
	}
	return sumMetric(string(text), name)
}

// sumMetric adds up all series of a metric in the text format.
func sumMetric(text, name string) (sum float64, err error) {
	found := false
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("parse %q: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}
