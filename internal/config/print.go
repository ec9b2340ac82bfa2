package config

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/server"
)

// Print returns the options as a YAML file with masked secrets. It leaves out options that are not
// set.
func Print(o server.Options) ([]byte, error) {
	return write(o, forebay.Secret.String)
}

func write(o server.Options, show func(forebay.Secret) string) ([]byte, error) {
	p := printer{show}
	node, err := p.structure(reflect.ValueOf(o))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b.Bytes(), nil
}

type printer struct {
	show func(forebay.Secret) string
}

func (p printer) structure(v reflect.Value) (*yaml.Node, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("koanf")
		if name == "" || name == "-" || v.Field(i).IsZero() {
			continue
		}
		value, err := p.value(v.Field(i))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(value.Content) == 0 && value.Kind == yaml.MappingNode && v.Field(i).Kind() == reflect.Struct {
			continue
		}
		node.Content = append(node.Content, text(name), value)
	}
	return node, nil
}

func (p printer) value(v reflect.Value) (*yaml.Node, error) {
	switch value := v.Interface().(type) {
	case forebay.Secret:
		return text(p.show(value)), nil
	case time.Duration:
		return text(value.String()), nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return p.value(v.Elem())
	case reflect.Struct:
		return p.structure(v)
	case reflect.Slice:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item, err := p.value(v.Index(i))
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, item)
		}
		return node, nil
	case reflect.Map:
		node := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range slices.Sorted(maps.Keys(names(v))) {
			item, err := p.value(v.MapIndex(reflect.ValueOf(name)))
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, text(name), item)
		}
		return node, nil
	case reflect.String:
		return text(p.address(v.String())), nil
	case reflect.Float64:
		// The encoder would write 1e+06, which the parser reads as text.
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatFloat(v.Float(), 'f', -1, 64)}, nil
	}
	node := &yaml.Node{}
	if err := node.Encode(v.Interface()); err != nil {
		return nil, err
	}
	return node, nil
}

// addressSecrets are the parts of a URL that may be secret: the password of its user, and
// parameters with such names.
var addressSecrets = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://[^/?#:@\s]*:)([^/?#\s]+)(@)` +
	`|([?&](?i:[^=&#\s]*(?:pass|secret|key|token|sig|code|credential)[^=&#\s]*)=)([^&#\s]+)`)

// address shows the secrets in a text that is a URL as other secrets are shown.
func (p printer) address(s string) string {
	if u, err := url.Parse(s); err != nil || u.Host == "" && u.RawQuery == "" {
		return s
	}
	return addressSecrets.ReplaceAllStringFunc(s, func(part string) string {
		m := addressSecrets.FindStringSubmatch(part)
		return m[1] + p.show(forebay.Secret(m[2])) + m[3] + m[4] + p.show(forebay.Secret(m[5]))
	})
}

func names(v reflect.Value) map[string]bool {
	all := map[string]bool{}
	for _, key := range v.MapKeys() {
		all[key.String()] = true
	}
	return all
}

// text returns a node that the parser reads as a string, whatever it looks like.
func text(s string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(s)
	if err := node.Encode(s); err != nil {
		panic(fmt.Errorf("encode string: %w", err)) // strings always can
	}
	return node
}
