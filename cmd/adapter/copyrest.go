package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang/snappy"
	remotewrite "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/ingest"
)

// copyCurrent writes the current samples of series that have ended, and returns how many there are. Of others the last day of samples has them.
func (o *options) copyCurrent(ctx context.Context, from *history.Rows, target history.Target, sel history.Selection) (n int64, err error) {
	now := o.now()
	start, limit := max(sel.Mint, now.Add(-bucketstore.MaxCurrentAge).UnixMilli()), min(sel.Maxt+1, now.Add(-engine.CurrentAge).UnixMilli())
	if start >= limit {
		return 0, nil
	}
	return from.CopyCurrent(ctx, target, start, limit)
}

// copyMetadata writes the metadata of families of which the target has none, and returns how many these are.
func (o *options) copyMetadata(ctx context.Context, target history.Target) (n int, err error) {
	v := &o.copy
	has, err := o.metadataAt(ctx, v.from, v.fromTenant)
	if err != nil {
		return 0, err
	}
	store, isHere := target.(*history.Store)
	if isHere {
		stored, err := store.Engine.Metadata(ctx, "", 0)
		if err != nil {
			return 0, err
		}
		for _, m := range stored {
			delete(has, m.Family)
		}
	} else {
		stored, err := o.metadataAt(ctx, v.to, o.tenancy.of)
		if err != nil {
			return 0, err
		}
		for family := range stored {
			delete(has, family)
		}
	}
	var lacking []ingest.Metadata
	for _, family := range slices.Sorted(maps.Keys(has)) {
		lacking = append(lacking, ingest.Metadata{Family: family, Metadata: has[family]})
	}
	if isHere {
		var rejected ingest.Rejected
		err := store.Engine.AppendMetadata(ctx, lacking, &rejected)
		return len(lacking), errors.Join(err, rejected.Err())
	}
	client, err := o.metadataClient()
	if err != nil {
		return 0, err
	}
	defer client.Client.CloseIdleConnections()
	for part := range slices.Chunk(lacking, metadataAtOnce) {
		if err := sendMetadata(ctx, client, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// metadataAtOnce is how many families have their metadata sent at once.
const metadataAtOnce = 1000

// metadataAt returns the metadata of the families that an adapter knows.
func (o *options) metadataAt(ctx context.Context, base, tenant string) (map[string]metadata.Metadata, error) {
	client, err := o.serverClient(tenant)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data map[string][]struct{ Type, Unit, Help string }
	}
	if _, err := askAdapter(ctx, client, http.MethodGet, strings.TrimSuffix(base, "/")+"/api/v1/metadata", &answer); err != nil {
		return nil, err
	}
	found := make(map[string]metadata.Metadata, len(answer.Data))
	for family, all := range answer.Data {
		for _, m := range all[:min(len(all), 1)] {
			found[family] = metadata.Metadata{Type: model.MetricType(m.Type), Unit: m.Unit, Help: m.Help}
		}
	}
	return found, nil
}

// metadataClient returns what sends metadata to the target, as a sender does.
func (o *options) metadataClient() (*remote.Client, error) {
	server, err := o.askedAdapter(strings.TrimSuffix(o.copy.to, "/")+"/api/v1/write", o.tenancy.of)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(server.URL)
	if err != nil {
		return nil, err
	}
	client, err := remote.NewWriteClient("copy", &remote.ClientConfig{URL: &config.URL{URL: u}, Timeout: model.Duration(time.Minute), Headers: server.Headers, HTTPClientConfig: server.HTTP, WriteProtoMsg: remotewrite.WriteV1MessageType})
	if err != nil {
		return nil, err
	}
	return client.(*remote.Client), nil
}

func sendMetadata(ctx context.Context, to *remote.Client, all []ingest.Metadata) error {
	var req prompb.WriteRequest
	for _, m := range all {
		kind := prompb.MetricMetadata_MetricType(prompb.MetricMetadata_MetricType_value[strings.ToUpper(string(m.Type))])
		req.Metadata = append(req.Metadata, prompb.MetricMetadata{Type: kind, MetricFamilyName: m.Family, Help: m.Help, Unit: m.Unit})
	}
	body, err := req.Marshal()
	if err != nil {
		return err
	}
	_, err = to.Store(ctx, snappy.Encode(nil, body), 0)
	return err
}
