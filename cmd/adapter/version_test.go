package main

import (
	"runtime/debug"
	"testing"

	"github.com/prometheus/common/version"
)

func TestBuildVersion(t *testing.T) {
	for _, tt := range []struct{ name, module, want string }{
		{"go install of a tag", "v0.1.0", "0.1.0"},
		{"go build in a clone", "v0.1.1-0.20261127123614-c7b7ef3ffa05", "0.1.1-0.20261127123614-c7b7ef3ffa05"},
		{"go build in a clone with changes", "v0.1.1-0.20261127123614-c7b7ef3ffa05+dirty", "0.1.1-0.20261127123614-c7b7ef3ffa05+dirty"},
		{"go build -buildvcs=false", "(devel)", "devel"},
		{"a test", "", "devel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := buildVersion(&debug.BuildInfo{Main: debug.Module{Version: tt.module}}); got != tt.want {
				t.Errorf("version %q, want %q", got, tt.want)
			}
		})
	}
	if got := buildVersion(nil); got != "devel" {
		t.Errorf("without build information: %q", got)
	}
}

// TestSetVersion: what -ldflags say stays.
func TestSetVersion(t *testing.T) {
	before := version.Version
	defer func() { version.Version = before }()
	info := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}}
	version.Version = "9.8.7"
	if setVersion(info); version.Version != "9.8.7" {
		t.Errorf("-ldflags are overruled: %s", version.Version)
	}
	version.Version = ""
	if setVersion(info); version.Version != "0.1.0" {
		t.Errorf("version %s", version.Version)
	}
}
