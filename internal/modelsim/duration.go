package modelsim

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time.Duration that YAML and JSON write like 30s.
type Duration time.Duration

// UnmarshalYAML reads a duration with a unit, or 0.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("line %d: must be a duration with a unit, such as 500ms, 30s or 5m", n.Line)
	}
	*d = Duration(v)
	return nil
}

// MarshalText writes the duration for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }
