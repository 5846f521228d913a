package main

import (
	"strings"
	"testing"
	"time"
)

// TestRetentionFlags: samples are kept for ever unless a flag says otherwise, and then for
// three days at least.
func TestRetentionFlags(t *testing.T) {
	const flag = "--retention.resolution-raw"
	for _, tt := range []struct {
		args    []string
		want    time.Duration
		text    string
		refused string
	}{
		{nil, 0, "for ever", ""},
		{[]string{flag + "=0"}, 0, "for ever", ""},
		{[]string{flag + "=0s"}, 0, "for ever", ""},
		{[]string{flag + "=3d"}, 72 * time.Hour, "3d", ""},
		{[]string{flag + "=90d"}, 90 * 24 * time.Hour, "90d", ""},
		{[]string{flag + "=2y"}, 2 * 365 * 24 * time.Hour, "2y", ""},
		{[]string{flag + "=1w12h"}, 180 * time.Hour, "7d12h", ""},
		{[]string{flag + "=71h59m59s999ms"}, 0, "", flag + "=2d23h59m59s999ms is too short: give it 3d or more"},
		{[]string{flag + "=1ms"}, 0, "", flag + "=1ms is too short"},
		{[]string{flag + "=3"}, 0, "", flag + "=3: "},
		{[]string{flag + "=-3d"}, 0, "", flag + "=-3d: "},
		{[]string{flag + "="}, 0, "", flag + " is empty"},
	} {
		o, err := parseFlags(tt.args)
		switch {
		case tt.refused != "":
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v: error %v, want %s", tt.args, err, tt.refused)
			}
		case err != nil || time.Duration(o.retention.raw) != tt.want || o.retention.text() != tt.text:
			t.Errorf("%v: %s, %v", tt.args, o.retention.raw, err)
		}
	}
}
