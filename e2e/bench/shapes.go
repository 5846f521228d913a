package main

import (
	"fmt"
	"math"
	"slices"
)

// A kind says how the values of a series move.
type kind int

const (
	constant       kind = iota // stays at its scale
	integerCounter             // grows by whole numbers, by about its scale a second
	centiCounter               // likewise, in hundredths, as CPU time is counted
	floatCounter               // likewise, with all bits of a float
	share                      // whole part of a fraction, its scale, of a counter that its group has in common
	pageGauge                  // walks in steps of 4096 bytes around its scale
	integerGauge               // walks in whole numbers around its scale
	decimalGauge               // walks in hundredths around its scale
	floatGauge                 // jumps around its scale, with all bits of a float
)

// A shape is a series of a host, without the labels of the host.
type shape struct {
	app    bool // exposed by the application, not by the node exporter
	name   string
	labels []string // pairs beyond those of the target
	kind   kind
	scale  float64
	group  int // not 0: series of one host and group see the same randomness
}

// hostShapes returns the series that a host has, in the order in which they are
// scraped: those of its node exporter, then those of its application.
func hostShapes() []shape {
	var s shapes
	s.cpu()
	s.disk()
	s.network()
	s.filesystem()
	s.memory()
	s.system()
	s.collectors()
	s.app = true
	s.http()
	s.runtime()
	return s.list
}

// shapes collects shapes.
type shapes struct {
	app    bool
	groups int
	list   []shape
}

func (s *shapes) add(name string, k kind, scale float64, labels ...string) {
	s.list = append(s.list, shape{app: s.app, name: name, labels: labels, kind: k, scale: scale})
}

func (s *shapes) cpu() {
	modes := []string{"idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"}
	busy := map[string]float64{"idle": 0.8, "iowait": 0.004, "softirq": 0.01, "system": 0.05, "user": 0.13}
	for cpu := range 8 {
		for _, mode := range modes {
			k := centiCounter
			if busy[mode] == 0 {
				k = constant
			}
			s.add("node_cpu_seconds_total", k, busy[mode], "cpu", fmt.Sprint(cpu), "mode", mode)
		}
	}
	for cpu := range 8 {
		s.add("node_cpu_scaling_frequency_hertz", integerGauge, 2.4e9, "cpu", fmt.Sprint(cpu))
	}
}

func (s *shapes) disk() {
	for i, device := range []string{"nvme0n1", "nvme1n1", "sda", "sdb"} {
		load := 1 / math.Pow(8, float64(i))
		s.add("node_disk_io_now", integerGauge, 3, "device", device)
		s.add("node_disk_io_time_seconds_total", floatCounter, 0.2*load, "device", device)
		s.add("node_disk_read_bytes_total", integerCounter, 3e6*load, "device", device)
		s.add("node_disk_read_time_seconds_total", centiCounter, 0.1*load, "device", device)
		s.add("node_disk_reads_completed_total", integerCounter, 90*load, "device", device)
		s.add("node_disk_write_time_seconds_total", centiCounter, 0.3*load, "device", device)
		s.add("node_disk_writes_completed_total", integerCounter, 250*load, "device", device)
		s.add("node_disk_written_bytes_total", integerCounter, 5e6*load, "device", device)
	}
}

func (s *shapes) network() {
	for i, device := range []string{"bond0", "eth0", "eth1", "lo"} {
		load := 1 / math.Pow(4, float64(i))
		for _, direction := range []string{"receive", "transmit"} {
			prefix := "node_network_" + direction + "_"
			s.add(prefix+"bytes_total", integerCounter, 2e6*load, "device", device)
			s.add(prefix+"drop_total", integerCounter, 0.01*load, "device", device)
			s.add(prefix+"errs_total", constant, 0, "device", device)
			s.add(prefix+"packets_total", integerCounter, 3e3*load, "device", device)
		}
	}
}

func (s *shapes) filesystem() {
	for _, mount := range []string{"/", "/boot", "/home", "/var/lib", "/var/log"} {
		labels := []string{"device", "/dev/mapper/vg0" + mount, "fstype", "ext4", "mountpoint", mount}
		s.add("node_filesystem_avail_bytes", pageGauge, 4e10, labels...)
		s.add("node_filesystem_files", constant, 6553600, labels...)
		s.add("node_filesystem_files_free", integerGauge, 6e6, labels...)
		s.add("node_filesystem_free_bytes", pageGauge, 5e10, labels...)
		s.add("node_filesystem_readonly", constant, 0, labels...)
		s.add("node_filesystem_size_bytes", constant, 107374182400, labels...)
	}
}

func (s *shapes) memory() {
	for _, what := range []string{
		"Active", "AnonPages", "Buffers", "Cached", "Dirty", "Inactive", "Mapped", "MemAvailable", "MemFree", "PageTables",
		"SReclaimable", "SUnreclaim", "Shmem", "Slab",
	} {
		s.add("node_memory_"+what+"_bytes", pageGauge, 2e9)
	}
	for _, what := range []string{"HugePages_Total", "MemTotal_bytes", "SwapTotal_bytes", "VmallocTotal_bytes", "Hugepagesize_bytes"} {
		s.add("node_memory_"+what, constant, 67430723584)
	}
}

func (s *shapes) system() {
	s.add("node_boot_time_seconds", constant, 1.7e9)
	s.add("node_context_switches_total", integerCounter, 9e3)
	s.add("node_forks_total", integerCounter, 4)
	for sensor := range 6 {
		s.add("node_hwmon_temp_celsius", decimalGauge, 48, "chip", "platform_coretemp_0", "sensor", fmt.Sprintf("temp%d", sensor+1))
	}
	s.add("node_intr_total", integerCounter, 6e3)
	for _, load := range []string{"node_load1", "node_load15", "node_load5"} {
		s.add(load, decimalGauge, 2)
	}
	for _, what := range []string{"Icmp_InMsgs", "Tcp_ActiveOpens", "Tcp_InSegs", "Tcp_OutSegs", "Tcp_RetransSegs", "Udp_InDatagrams"} {
		s.add("node_netstat_"+what, integerCounter, 20)
	}
	s.add("node_procs_blocked", integerGauge, 1)
	s.add("node_procs_running", integerGauge, 4)
	s.add("node_time_seconds", floatCounter, 1)
	s.add("node_uname_info", constant, 1, "machine", "x86_64", "release", "6.12.41-amd64", "sysname", "Linux")
}

func (s *shapes) collectors() {
	names := []string{
		"arp", "conntrack", "cpu", "diskstats", "edac", "entropy", "filefd", "filesystem", "hwmon", "loadavg",
		"mdadm", "meminfo", "netdev", "netstat", "sockstat", "stat", "time", "timex", "uname", "vmstat",
	}
	for _, name := range names {
		s.add("node_scrape_collector_duration_seconds", floatGauge, 0.002, "collector", name)
	}
	for _, name := range names {
		s.add("node_scrape_collector_success", constant, 1, "collector", name)
	}
	s.add("up", constant, 1)
}

// http adds classic histograms: the buckets of one are fractions of one count.
func (s *shapes) http() {
	bounds := []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"}
	const name = "http_request_duration_seconds"
	for i, handler := range []string{"/api/v1/items", "/api/v1/login", "/api/v1/orders", "/healthz", "/metrics"} {
		for j, code := range []string{"200", "500"} {
			labels := []string{"code", code, "handler", handler, "method", "GET"}
			s.groups++
			for k, le := range bounds {
				fraction := 1 - math.Exp(-float64(k+1)*0.5)
				if le == "+Inf" {
					fraction = 1
				}
				s.add(name+"_bucket", share, fraction, append(slices.Clone(labels), "le", le)...)
				s.list[len(s.list)-1].group = s.groups
			}
			s.add(name+"_count", share, 1, labels...)
			s.list[len(s.list)-1].group = s.groups
			s.add(name+"_sum", floatCounter, 0.5/float64(1+i+9*j), labels...)
		}
	}
}

func (s *shapes) runtime() {
	for _, quantile := range []string{"0", "0.25", "0.5", "0.75", "1"} {
		s.add("go_gc_duration_seconds", floatGauge, 1e-4, "quantile", quantile)
	}
	s.add("go_goroutines", integerGauge, 140)
	s.add("go_info", constant, 1, "version", "go1.26.0")
	s.add("go_memstats_alloc_bytes_total", integerCounter, 4e6)
	for _, what := range []string{"alloc", "heap_alloc", "heap_idle", "heap_inuse", "heap_sys", "stack_inuse"} {
		s.add("go_memstats_"+what+"_bytes", pageGauge, 6e7)
	}
	s.add("go_memstats_frees_total", integerCounter, 3e4)
	s.add("go_memstats_mallocs_total", integerCounter, 3e4)
	s.add("process_cpu_seconds_total", centiCounter, 0.3)
	s.add("process_max_fds", constant, 1048576)
	s.add("process_open_fds", integerGauge, 60)
	s.add("process_resident_memory_bytes", pageGauge, 1.2e8)
	for _, queue := range []string{"email", "export", "index", "thumbnail"} {
		s.add("queue_depth", integerGauge, 12, "queue", queue)
		s.add("queue_wait_seconds", floatGauge, 0.3, "queue", queue)
	}
	s.add("up", constant, 1)
}
