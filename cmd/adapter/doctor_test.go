package main

import (
	"strings"
	"testing"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// TestContradictions: who may delete samples is asked about where everybody reaches the address, and nothing says who they are.
func TestContradictions(t *testing.T) {
	for _, tt := range []struct {
		flags promv1.FlagsResult
		wrong int
	}{
		{promv1.FlagsResult{"web.enable-admin-api": "true", "web.listen-address": ":9201"}, 1},
		{promv1.FlagsResult{"web.enable-admin-api": "true", "web.listen-address": "0.0.0.0:9201"}, 1},
		{promv1.FlagsResult{"web.enable-admin-api": "false", "web.listen-address": ":9201"}, 0},
		{promv1.FlagsResult{"web.enable-admin-api": "true", "web.listen-address": "127.0.0.1:9201"}, 0},
		{promv1.FlagsResult{"web.enable-admin-api": "true", "web.listen-address": ":9201", "web.users-file": "users.yml"}, 0},
		{promv1.FlagsResult{"web.enable-admin-api": "true", "web.listen-address": ":9201", "web.config.file": "web.yml"}, 0},
		{promv1.FlagsResult{"web.enable-admin-api": "true", "web.listen-address": ":9201", "web.admin-listen-address": "127.0.0.1:1"}, 0},
	} {
		var out strings.Builder
		d := &doctor{out: &out}
		if d.contradictions(tt.flags); d.wrong != tt.wrong || tt.wrong > 0 && !strings.Contains(out.String(), tt.flags["web.listen-address"]) {
			t.Errorf("%v: %d, %s", tt.flags, d.wrong, out.String())
		}
	}
}
