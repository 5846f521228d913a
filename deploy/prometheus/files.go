// Package prometheus has the files of this directory, for programs that say the same as the alerts.
package prometheus

import _ "embed"

// Alerts and Rules are alerts.yml and rules.yml.
var (
	//go:embed alerts.yml
	Alerts []byte
	//go:embed rules.yml
	Rules []byte
)
