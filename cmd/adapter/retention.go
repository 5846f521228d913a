package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/retention"
	"github.com/promtable/promtable/series"
)

// retentionOptions are the flags about retention.
type retentionOptions struct {
	// raw is how long raw samples are kept. 0 is for ever.
	raw model.Duration
	// size is how many bytes the embedded store may take. 0 is no limit.
	size byteSize
}

func (o *options) retentionFlags(app *kingpin.Application) {
	app.Flag("retention.resolution-raw", fmt.Sprintf("How long samples are kept, such as 90d or 2y, at least %s. Older ones are not shown, and refused. 0 is for ever.", model.Duration(retention.MinRaw))).
		Default("0s").SetValue(&o.retention.raw)
	o.retention.size.flag = "retention.size"
	o.given[o.retention.size.flag] = new(bool)
	app.Flag(o.retention.size.flag, "Size of the embedded store on the disk, without the log of the buffer, beyond which its oldest days go, but for the newest 3. 0 is no limit.").
		Default("0B").IsSetByUser(o.given[o.retention.size.flag]).SetValue(&o.retention.size)
}

// checkRetention checks the flags about retention.
func (o *options) checkRetention() error {
	if raw := time.Duration(o.retention.raw); raw != 0 && raw < retention.MinRaw {
		return fmt.Errorf("--retention.resolution-raw=%s is too short: give it %s or more, or 0 to keep samples for ever", o.retention.raw, model.Duration(retention.MinRaw))
	}
	if *o.given[o.retention.size.flag] && o.backend == backendBigtable {
		return errors.New("--retention.size is for the embedded store: leave it out, or use --storage.backend=embedded")
	}
	return nil
}

// text says how long samples are kept, as Prometheus says it.
func (r *retentionOptions) text() string {
	switch {
	case r.raw == 0 && r.size.Base2Bytes == 0:
		return "for ever"
	case r.raw == 0:
		return r.size.String()
	case r.size.Base2Bytes == 0:
		return r.raw.String()
	}
	return r.raw.String() + " or " + r.size.String()
}

// tables returns the tables as the store is opened with them, on Bigtable with the ages of
// new ones. The embedded store deletes no samples by age, but what the retention lets it
// delete.
func (o *options) tables() []bucketstore.TableSpec {
	if o.backend == backendEmbedded || o.retention.raw == 0 {
		return bucketstore.Tables(bucketstore.Retention{})
	}
	return bucketstore.Tables(bucketstore.KeepAll(time.Duration(o.retention.raw) + retention.StoreGrace))
}

// An ager is a store that deletes cells by age itself.
type ager interface {
	Tables() []bucketstore.TableSpec
}

// keptTables returns the tables with the ages to which their families keep cells.
func (o *options) keptTables(rows bucketstore.Store) []bucketstore.TableSpec {
	if store, ok := rows.(ager); ok {
		return store.Tables()
	}
	return bucketstore.Tables(bucketstore.KeepAll(time.Duration(o.retention.raw)))
}

// sampleAge returns the least age at which samples are deleted in tables. 0 is never.
func sampleAge(tables []bucketstore.TableSpec) (least time.Duration) {
	for _, f := range tables[bucketstore.Metric].Families {
		if f.Name != series.FamilyExemplar && f.MaxAge > 0 && (least == 0 || f.MaxAge < least) {
			least = f.MaxAge
		}
	}
	return least
}

// An expirer is a store on the local disk that deletes what it is told to.
type expirer interface {
	ExpireBefore(r bucketstore.Resolution, cut int64)
	Usage() (bucketstore.Usage, error)
}

// openRetention begins to delete old samples. The store has its schema.
func (a *adapter) openRetention(ctx context.Context, rows bucketstore.Store) (err error) {
	cfg := retention.Config{Meta: a.meta, Now: time.Now, Raw: time.Duration(a.o.retention.raw), Logger: a.logger, Registerer: a.reg}
	a.kept = a.o.keptTables(rows)
	if store, ok := rows.(expirer); ok {
		cfg.Expire = func(cut int64) {
			for r := range bucketstore.NumResolutions {
				store.ExpireBefore(r, cut)
			}
		}
		cfg.Usage, cfg.Size = store.Usage, uint64(a.o.retention.size.Base2Bytes)
	} else {
		cfg.StoreAge = sampleAge(a.kept)
	}
	a.retention, err = retention.Open(ctx, cfg)
	return err
}
