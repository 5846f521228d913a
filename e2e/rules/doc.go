// Package rules tests recording and alerting rules as the adapter evaluates them, with Alertmanagers that note what they get. That what is
// recorded is what Prometheus records is tested in remote/rules.
package rules
