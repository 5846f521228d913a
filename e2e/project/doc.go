// Package project tests the repository itself: the imports between packages, the
// flags in the README, docker-compose.yml and what it refers to, and the Dockerfile.
package project
