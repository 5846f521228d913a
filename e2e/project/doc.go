// Package project tests the repository itself: the imports between packages, its
// documentation, docker-compose.yml and what it refers to, the Dockerfile, and what
// deploy has for Prometheus, Grafana, Kubernetes and systemd. boardlist_test.go lists
// the dashboards, which boards_test.go writes and boardload_test.go asks.
package project
