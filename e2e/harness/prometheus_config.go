package harness

import (
	"fmt"
	"strings"
)

// A Job is a scrape job.
type Job struct {
	Name    string
	Targets []string
	Extra   string // more lines of the job, indented by four
}

// ScrapeConfig returns a configuration that scrapes jobs every second.
func ScrapeConfig(jobs ...Job) string {
	var b strings.Builder
	b.WriteString("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n")
	for _, j := range jobs {
		fmt.Fprintf(&b, "  - job_name: %s\n%s    static_configs:\n      - targets: ['%s']\n",
			j.Name, j.Extra, strings.Join(j.Targets, "', '"))
	}
	return b.String()
}

// WriteConfig returns a configuration that makes Prometheus send everything to each
// receiver, in its protocol.
func WriteConfig(receivers []Receiver) string {
	var b strings.Builder
	b.WriteString("remote_write:\n")
	for _, r := range receivers {
		fmt.Fprintf(&b, "  - url: %s\n    name: %s\n    protobuf_message: %s\n", r.URL("/api/v1/write"), r.ID(), r.Protocol.message)
		b.WriteString("    queue_config: {batch_send_deadline: 1s, max_shards: 4}\n")
		b.WriteString("    send_exemplars: true\n    send_native_histograms: true\n")
		b.WriteString("    metadata_config: {send: true, send_interval: 1s}\n")
	}
	return b.String()
}

// ReadConfig returns a configuration that makes Prometheus read everything from one
// adapter.
func ReadConfig(a *Adapter) string {
	return fmt.Sprintf("remote_read:\n  - url: %s\n    read_recent: true\n", a.URL("/api/v1/read"))
}

// A Receiver is an adapter and the protocol in which it is written to.
type Receiver struct {
	*Adapter
	Backend  string // its name
	Protocol Protocol
}

// ID names the receiver.
func (r Receiver) ID() string { return r.Backend + "-" + r.Protocol.Name }
