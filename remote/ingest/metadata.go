package ingest

import (
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"
)

// Metadata is what a sender says of a metric family. It has no time: the last one
// counts.
type Metadata struct {
	// Family is the name of the metric family, see FamilyName.
	Family string
	metadata.Metadata
}

// FamilyName returns the name of the metric family that a series with this name
// belongs to, if its family is of this type: those of histograms and summaries
// have suffixes.
func FamilyName(name string, kind model.MetricType) string {
	var suffixes []string
	switch kind {
	case model.MetricTypeHistogram:
		suffixes = []string{"_bucket", "_count", "_sum"}
	case model.MetricTypeGaugeHistogram:
		suffixes = []string{"_bucket", "_gcount", "_gsum", "_count", "_sum"}
	case model.MetricTypeSummary:
		suffixes = []string{"_count", "_sum"}
	}
	for _, suffix := range suffixes {
		if family, ok := strings.CutSuffix(name, suffix); ok && family != "" {
			return family
		}
	}
	return name
}
