package bigtable

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/promtable/promtable/bucketstore"
)

// emulatorVariable is the environment variable that all of Google's clients
// read.
const emulatorVariable = "BIGTABLE_EMULATOR_HOST"

// Config says which instance to use and how. The zero value of a field is its
// default where one is given.
type Config struct {
	// Project and Instance name the instance. Both are needed; an emulator takes
	// any.
	Project, Instance string
	// AppProfile is the app profile of all reads and writes. Default: that of
	// the instance. Writers need one with single-cluster routing that allows
	// single-row transactions: CheckAndApply fails without, and a Scan may
	// miss an earlier Apply.
	AppProfile string
	// TablePrefix stands before the name of each table, so that several
	// adapters can share an instance: letters, digits, "_", "-" and ".",
	// at most 40, the first of them a letter, a digit or "_".
	TablePrefix string
	// Connections is the size of the pool of gRPC connections at the start; the
	// client resizes it by load. Default: the client's, 10. With an emulator there is
	// one connection.
	Connections int

	// Tables are the tables to work with. Others are unknown to the store.
	Tables []bucketstore.TableSpec
	// CreateTables makes tables and families that are missing. Without it they
	// are an error. Garbage collection of families that are there is never
	// changed.
	CreateTables bool

	// EmulatorHost is the host:port of an emulator to use in place of Google's
	// service, without credentials or encryption. Default: the environment
	// variable BIGTABLE_EMULATOR_HOST.
	EmulatorHost string
	// Conn is a connection to use in place of both, for tests: reads are then
	// filtered as in Google's service. The store closes it, also when Open
	// fails.
	Conn *grpc.ClientConn

	// CallTimeout bounds each request for rows. It is for callers without a
	// deadline of their own: the earlier of the two counts. A Scan may last longer,
	// but not wait longer for its next row. Default: a minute.
	CallTimeout time.Duration
	// AdminTimeout does the same for each request about tables, the drop of a
	// range included. Default: five minutes.
	AdminTimeout time.Duration

	// Logger gets what an operator should know of the tables. Default: none.
	Logger log.Logger
	// Registerer gets the metrics. Default: none.
	Registerer prometheus.Registerer
}

// tablePrefix leaves ten of the fifty characters of a table's name to names.
var tablePrefix = regexp.MustCompile(`^([_a-zA-Z0-9][-_.a-zA-Z0-9]{0,39})?$`)

// withDefaults returns c with defaults filled in, or what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Project == "":
		return c, errors.New("bigtable: no project")
	case c.Instance == "":
		return c, errors.New("bigtable: no instance")
	case c.Connections < 0:
		return c, fmt.Errorf("bigtable: %d connections", c.Connections)
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
	if c.CallTimeout <= 0 {
		c.CallTimeout = time.Minute
	}
	if c.AdminTimeout <= 0 {
		c.AdminTimeout = 5 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = log.NewNopLogger()
	}
	return c, nil
}

// tableName returns the name of a table in the instance.
func (c Config) tableName(t bucketstore.Table) string { return c.TablePrefix + t.String() }
