package write_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"

	"github.com/promtable/promtable/remote/write"
)

func TestParseOTLPConfig(t *testing.T) {
	with := func(change func(*config.OTLPConfig)) config.OTLPConfig {
		c := config.DefaultOTLPConfig
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name, text string
		want       config.OTLPConfig
		failure    string
	}{
		{name: "nothing", want: config.DefaultOTLPConfig},
		{name: "an empty block", text: "otlp: {}", want: config.DefaultOTLPConfig},
		{name: "promoted", text: "otlp:\n  promote_resource_attributes: [a.b, ' c ']", want: with(func(c *config.OTLPConfig) { c.PromoteResourceAttributes = []string{"a.b", "c"} })},
		{name: "all but some", text: "otlp: {promote_all_resource_attributes: true, ignore_resource_attributes: [a]}", want: with(func(c *config.OTLPConfig) {
			c.PromoteAllResourceAttributes, c.IgnoreResourceAttributes = true, []string{"a"}
		})},
		{name: "the rest", text: `otlp:
  translation_strategy: NoTranslation
  keep_identifying_resource_attributes: true
  convert_histograms_to_nhcb: true
  promote_scope_metadata: true
  label_name_underscore_sanitization: false
  label_name_preserve_multiple_underscores: false`, want: config.OTLPConfig{
			TranslationStrategy: "NoTranslation", KeepIdentifyingResourceAttributes: true, ConvertHistogramsToNHCB: true, PromoteScopeMetadata: true,
		}},
		{name: "another block", text: "otlp: {}\nglobal: {}", failure: "field global: the file has only the block otlp"},
		{name: "an unknown field", text: "otlp:\n  promote: []", failure: "line 2: field promote not found"},
		{name: "an unknown strategy", text: "otlp: {translation_strategy: Some}", failure: `strategy "Some"`},
		{name: "both", text: "otlp: {promote_all_resource_attributes: true, promote_resource_attributes: [a]}", failure: "cannot be configured simultaneously"},
		{name: "twice", text: "otlp: {promote_resource_attributes: [a, a]}", failure: `duplicated promoted OTel resource attribute "a"`},
		{name: "no YAML", text: "otlp: [", failure: "yaml"},
		{name: "no map", text: "otlp", failure: "yaml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := write.ParseOTLPConfig([]byte(tt.text))
			if tt.failure != "" {
				if err == nil || !strings.Contains(err.Error(), tt.failure) {
					t.Errorf("error %v, want %s", err, tt.failure)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}
