package modelsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
)

// maxFileBytes bounds a file of options and a script.
const maxFileBytes = 1 << 20

// UnmarshalYAML reads a list of faults, or the name of a script.
func (s *Script) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return n.Decode((*[]Fault)(s))
	}
	script, err := NamedScript(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: there is no script %.64q; there are %v", n.Line, n.Value, ScriptNames())
	}
	*s = script
	return nil
}

// Rates are shares of calls, by status.
type Rates map[int]float64

// UnmarshalYAML reads statuses as numbers, or as text, as JSON has them.
func (r *Rates) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must be rates by status, such as {503: 0.5}", n.Line)
	}
	*r = Rates{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		status, err := strconv.Atoi(key.Value)
		if err != nil {
			return fmt.Errorf("line %d: %.64q is no status", key.Line, key.Value)
		}
		if _, twice := (*r)[status]; twice {
			return fmt.Errorf("line %d: %d is given twice", key.Line, status)
		}
		var rate float64
		if err := value.Decode(&rate); err != nil {
			return err
		}
		(*r)[status] = rate
	}
	return nil
}

// UnmarshalYAML reads a deployment over the defaults.
func (d *Deployment) UnmarshalYAML(n *yaml.Node) error {
	type plain Deployment
	*d = DefaultDeployment()
	d.Name = ""
	return n.Decode((*plain)(d))
}

// ReadServerOptions reads a YAML file of options. Errors are *forebay.Error values with the line.
func ReadServerOptions(data []byte) (ServerOptions, error) {
	var o ServerOptions
	if err := decode(data, &o); err != nil {
		return ServerOptions{}, err
	}
	return o, nil
}

// ReadScript reads a script, or the name of one, as YAML or JSON.
func ReadScript(data []byte) (Script, error) {
	var s Script
	if err := decode(data, &s); err != nil {
		return nil, err
	}
	return s, s.Validate()
}

func decode(data []byte, into any) error {
	if len(data) > maxFileBytes {
		return forebay.Errorf(forebay.CodePayloadTooLarge, "is larger than %d bytes", maxFileBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := d.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return forebay.Errorf(forebay.CodeInvalidRequest, "is empty")
		}
		return yamlError(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return forebay.Errorf(forebay.CodeInvalidRequest, "holds more than one YAML document")
	}
	if err := checkKeys(document.Content[0], reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if err := document.Decode(into); err != nil {
		return yamlError(err)
	}
	return nil
}

// checkKeys refuses unknown keys. The parser cannot, as it does not look into types that parse
// themselves.
func checkKeys(n *yaml.Node, t reflect.Type) error {
	switch {
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for _, item := range n.Content {
			if err := checkKeys(item, t.Elem()); err != nil {
				return err
			}
		}
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		known := map[string]reflect.Type{}
		for i := range t.NumField() {
			known[t.Field(i).Tag.Get("yaml")] = t.Field(i).Type
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			field, ok := known[key.Value]
			if !ok {
				names := make([]string, 0, len(known))
				for name := range known {
					names = append(names, name)
				}
				slices.Sort(names)
				return forebay.Errorf(forebay.CodeUnknownField, "line %d: unknown key %.64q; the keys here are %s", key.Line, key.Value, strings.Join(names, ", "))
			}
			if err := checkKeys(n.Content[i+1], field); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrongType is how the parser says that a value does not fit.
var wrongType = lazy("^(line \\d+): cannot unmarshal !!(\\w+)(?: `.*`)? into (.*)$")

// yamlError is the parser's first error in plain words. It names no Go type, and quotes no
// value: it could be a secret in the wrong place.
func yamlError(err error) error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if e, ok := errors.AsType[*yaml.TypeError](err); ok && len(e.Errors) > 0 {
		message = e.Errors[0]
	}
	message = strings.Join(strings.Fields(message), " ")
	if m := wrongType().FindStringSubmatch(message); m != nil {
		message = m[1] + ": must be " + goKind(m[3]) + ", not " + yamlKind(m[2])
	}
	return forebay.Errorf(forebay.CodeInvalidRequest, "%s", message)
}

func goKind(t string) string {
	switch {
	case t == "int", t == "uint64":
		return "a whole number"
	case t == "float64":
		return "a number"
	case t == "bool":
		return "true or false"
	case strings.HasPrefix(t, "[]"), strings.HasSuffix(t, ".Script"):
		return "a list"
	case strings.HasSuffix(t, ".plain"), strings.HasSuffix(t, ".ServerOptions"), strings.HasSuffix(t, ".Fault"):
		return "a section of keys and values"
	}
	return "text"
}

func yamlKind(tag string) string {
	switch tag {
	case "int":
		return "a whole number"
	case "float":
		return "a number"
	case "bool":
		return "true or false"
	case "seq":
		return "a list"
	case "map":
		return "a section"
	case "null":
		return "nothing"
	}
	return "text"
}
