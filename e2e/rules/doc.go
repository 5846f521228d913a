// Package rules tests recording and alerting rules as the adapter evaluates them, with Alertmanagers that note what they get. That it
// records what Prometheus records is tested in remote/rules, and beside a running Prometheus in e2e/realprometheus.
package rules
