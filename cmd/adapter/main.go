// Command adapter is remote storage for Prometheus on Google Bigtable, or on an
// embedded store on the local disk.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// bufferGCPercent is how much the heap may grow between two collections beside a
// buffer, unless GOGC says otherwise. Most of that heap lives long and has few
// pointers: collections cost little beside what a smaller heap saves. Without a
// buffer most of the heap belongs to requests, and Go's default is right.
const bufferGCPercent = 50

// ballastBytes is memory that is reserved and never touched: it takes no room, but the garbage
// collector counts it as in use. The heap of an adapter with little to do is some 15 MB, and it
// would be collected after each 7 MB of garbage, which a query makes: that took a third of its
// CPU time. With a ballast it is collected after 40 MB.
const ballastBytes = 64 << 20

func main() {
	info, _ := debug.ReadBuildInfo()
	setVersion(info)
	o, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "adapter: error:", err)
		os.Exit(2)
	}
	if o.buffered && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(bufferGCPercent)
	}
	ballast := make([]byte, ballastBytes)
	defer runtime.KeepAlive(ballast)
	logger := newLogger(os.Stderr, o.logLevel, o.logFormat)
	o.limitMemory(logger)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := map[string]func(context.Context, *options, log.Logger) error{
		commandServe:        run,
		commandCompact:      compact,
		commandBufferList:   listLogs,
		commandBufferForget: forgetLog,
		commandCheck:        checkStored,
		commandSchemaApply:  applySchema,
		commandEstimate:     printEstimate,
		commandDemo:         demonstrate,
		commandDelete:       deleteSamples,
		commandRestore:      restoreSnapshot,

		commandSnapshotTake:   takeSnapshot,
		commandSnapshotList:   listSnapshots,
		commandSnapshotVerify: verifySnapshot,

		commandCopy:              copySamples,
		commandHeal:              healStore,
		commandExemplars:         copyExemplars,
		commandDigest:            printDigest,
		commandDump:              dumpRows,
		commandExportBlocks:      exportSamples,
		commandExportOpenMetrics: exportSamples,
		commandImportBlocks:      importSamples,
		commandImportText:        importSamples,
		commandImportInflux:      importSamples,
		commandImportRead:        importSamples,
		commandImportExport:      importSamples,
		commandRetentionExplain:  explainRetention,
		commandTenantList:        manageTenants,
		commandDoctor:            examine,
		commandBackfill:          backfillRules,
		commandRelabel:           relabelSeries,
		commandTenantCreate:      manageTenants,
		commandTenantDrop:        manageTenants,
	}[o.command]
	if err := do(ctx, o, logger); err != nil {
		level.Error(logger).Log("msg", "adapter failed", "err", err)
		os.Exit(1)
	}
}

// newLogger returns a logger in Prometheus' format.
func newLogger(w io.Writer, severity, format string) log.Logger {
	w = log.NewSyncWriter(w)
	logger := log.NewLogfmtLogger(w)
	if format == "json" {
		logger = log.NewJSONLogger(w)
	}
	logger = level.NewFilter(logger, level.Allow(level.ParseDefault(severity, level.InfoValue())))
	return log.With(logger, "ts", log.DefaultTimestampUTC, "caller", log.DefaultCaller)
}
