// Package cli tests the program as its operator sees it: flags, subcommands,
// starting and stopping, the paths it serves, and the web configuration.
package cli
