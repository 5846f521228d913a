package main

import (
	"runtime/debug"
	"strings"

	"github.com/prometheus/common/version"
)

// setVersion sets the version and the revision of a program that was built without -ldflags. Those
// that -ldflags have set stay.
func setVersion(info *debug.BuildInfo) {
	if version.Version == "" {
		version.Version = buildVersion(info)
	}
}

// buildVersion returns the version of the module that the go command has noted in the program: that
// of a tag for go install MODULE@VERSION, and one with the time and the revision of the commit for a
// build in a clone. It has no v in front, as those of Prometheus have none. It is "devel" if
// the program was built without version control.
func buildVersion(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}
