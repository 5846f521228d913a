// Package project tests the repository itself: the imports between packages, its
// documentation, docker-compose.yml and what it refers to, and the Dockerfile.
package project
