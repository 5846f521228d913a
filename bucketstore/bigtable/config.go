package bigtable

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/api/option"
	"google.golang.org/grpc/keepalive"

	"github.com/promtable/promtable/bucketstore"
)

// emulatorVariable is the environment variable that all of Google's clients
// read.
const emulatorVariable = "BIGTABLE_EMULATOR_HOST"

// directAccessVariable is what Google's client reads before ClientConfig.DisableDirectAccess.
const directAccessVariable = "CBT_ENABLE_DIRECTPATH"

// directAccessWanted says whether the environment turns on direct access.
func directAccessWanted() bool {
	on, _ := strconv.ParseBool(os.Getenv(directAccessVariable)) // as the client reads it
	return on
}

// Config says which instance to use and how. The zero value of a field is its
// default where one is given.
type Config struct {
	// Project and Instance name the instance. Both are required; an emulator accepts any
	// names.
	Project, Instance string
	// AppProfile is the app profile of all reads and writes. Default: that of the instance.
	// Writers need single-cluster routing with single-row transactions: otherwise
	// CheckAndApply fails, and a Scan may miss an earlier Apply.
	AppProfile string
	// TablePrefix stands before the name of each table, so that several
	// adapters can share an instance: letters, digits, "_", "-" and ".",
	// at most 40, the first of them a letter, a digit or "_".
	TablePrefix string
	// Connections is the size of the pool of gRPC connections. Default: the client's, 10. An
	// emulator gets one connection.
	Connections int
	// DirectAccess lets the client use Google's direct path, which it offers inside Google
	// Cloud. A program that is built with the tag disable_grpc_modules lacks its resolver:
	// see DirectAccessBuilt.
	DirectAccess bool
	// ClientMetrics lets Google's client send its own metrics to Cloud Monitoring, which
	// needs the right to.
	ClientMetrics bool
	// UserAgent is what Bigtable is told about the program. Default: promtable.
	UserAgent string

	// Tables are the tables of the store. Any other is an error.
	Tables []bucketstore.TableSpec
	// CreateTables creates missing tables and families. Without it they are an error. The
	// garbage collection of existing families is never changed.
	CreateTables bool

	// EmulatorHost is the host:port of an emulator, which is used instead of Google's
	// service, without credentials or encryption. Default: the environment variable
	// BIGTABLE_EMULATOR_HOST.
	EmulatorHost string
	// ClientOptions are further options for the connections to Google's service. Tests use
	// them for a server that stands for it.
	ClientOptions []option.ClientOption

	// keepAlive is for the connections to Google's service. Default: defaultKeepAlive.
	keepAlive keepalive.ClientParameters

	// CallTimeout bounds each request for rows, for callers with a later deadline or none.
	// A Scan may last longer, but each wait for its next row may not. Default: a minute.
	// An attempt that waits for a third of that, or of the time to the caller's deadline, is
	// repeated on another connection, but for CheckAndApply, which then fails.
	CallTimeout time.Duration
	// ReachTimeout bounds how long Open waits for the connections, and for the description
	// of each table. Default: 8 seconds.
	ReachTimeout time.Duration
	// AdminTimeout bounds each request to the admin API, the drop of a range included.
	// Default: five minutes.
	AdminTimeout time.Duration

	// Logger may be nil.
	Logger log.Logger
	// Registerer takes the metrics. It may be nil. Stores with the same one, whose Tables are
	// the same, are counted together.
	Registerer prometheus.Registerer
}

// tablePrefix is 40 bytes at most: Bigtable allows 50 for the name of a table.
var tablePrefix = regexp.MustCompile(`^([_a-zA-Z0-9][-_.a-zA-Z0-9]{0,39})?$`)

// withDefaults returns c with its defaults, or an error if c is invalid.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Project == "":
		return c, errors.New("bigtable: no project")
	case c.Instance == "":
		return c, errors.New("bigtable: no instance")
	case c.Connections < 0:
		return c, fmt.Errorf("bigtable: %d connections", c.Connections)
	case (c.DirectAccess || directAccessWanted()) && !DirectAccessBuilt:
		return c, errors.New("bigtable: direct access is not in this program, which was built with -tags disable_grpc_modules: build it without the tag, or unset " + directAccessVariable)
	case !tablePrefix.MatchString(c.TablePrefix):
		return c, fmt.Errorf("bigtable: table prefix %q: want at most 40 letters, digits, _, - and ., not beginning with - or .", c.TablePrefix)
	}
	for _, spec := range c.Tables {
		if spec.Table >= bucketstore.NumTables {
			return c, fmt.Errorf("bigtable: table %d: %w", spec.Table, bucketstore.ErrTable)
		}
	}
	if c.EmulatorHost == "" {
		c.EmulatorHost = os.Getenv(emulatorVariable)
	}
	if c.UserAgent == "" {
		c.UserAgent = "promtable"
	}
	if c.CallTimeout <= 0 {
		c.CallTimeout = time.Minute
	}
	if c.ReachTimeout <= 0 {
		c.ReachTimeout = 8 * time.Second
	}
	if c.AdminTimeout <= 0 {
		c.AdminTimeout = 5 * time.Minute
	}
	if c.keepAlive == (keepalive.ClientParameters{}) {
		c.keepAlive = defaultKeepAlive
	}
	if c.Logger == nil {
		c.Logger = log.NewNopLogger()
	}
	return c, nil
}

// tableName returns the name of a table in the instance.
func (c Config) tableName(t bucketstore.Table) string { return c.TablePrefix + t.String() }
