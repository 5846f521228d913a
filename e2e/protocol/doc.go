// Package protocol tests remote write and remote read by hand-made requests: which
// are taken, which are refused with what status and message, what is found
// afterwards at the limits of times, labels and sizes, and the election of replicas.
package protocol
