// Package config reads the server's options: one YAML file, then FOREBAY_… variables, then flags.
// Each source overrides the one before. The options are found by reflection over [server.Options],
// so that each option exists in all three sources.
//
// In a variable's name "__" steps into a section: FOREBAY_LIMITS__MAX_INPUT_BYTES. A variable for
// anything but a string holds YAML, such as [a, b]. A secret may also come from a file, named by
// the option with the suffix _file. Durations are written like 30s. Unknown keys, repeated keys
// and values of the wrong type are errors that name the key.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay/server"
)

const (
	maxFileBytes   = 1 << 20
	maxSecretBytes = 64 << 10

	envPrefix = "FOREBAY_"
	// delimiter separates the parts of a key inside koanf. No name may contain it.
	delimiter = "\x00"
)

// clientVariables are read by commands that talk to a server.
var clientVariables = []string{"FOREBAY_URL", "FOREBAY_API_KEY", "FOREBAY_CA_CERT"}

// Source says where options come from.
type Source struct {
	File     string   // "": no file
	Environ  []string // as os.Environ
	Listen   string   // from flags; "": not given
	Database string
	Role     string
	Files    bool // the certificate and its key are read too, to find what is wrong with them
}

// Loaded is what Load found.
type Loaded struct {
	Options server.Options // complete: with defaults
	Notes   []string       // for the log: what was added or ignored without being asked
}

// Error lists all problems of a configuration. Each problem is one line without secrets.
type Error struct {
	Problems []string
}

func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }

// Load reads the options and checks them. The error is an *Error.
func Load(src Source) (Loaded, error) {
	k := koanf.New(delimiter)
	if src.File != "" {
		data, err := readFile(src.File)
		if err != nil {
			return Loaded{}, err
		}
		tree, err := parseYAML(data)
		if err == nil {
			err = k.Load(values(tree), nil)
		}
		if err != nil {
			return Loaded{}, &Error{[]string{fileName(src.File) + ": " + err.Error()}}
		}
	}
	environ := clean(src.Environ)
	variables := map[string]string{} // key → variable, to name in errors
	if err := k.Load(env.Provider("", env.Opt{
		Prefix: envPrefix, EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) { return transform(variables, name, value) },
	}), nil, koanf.WithMergeFunc(overlay)); err != nil {
		return Loaded{}, &Error{[]string{err.Error()}}
	}
	flags := map[string]any{}
	if src.Listen != "" {
		flags["listen"] = src.Listen
	}
	if src.Database != "" {
		flags["database"] = src.Database
	}
	if src.Role != "" {
		flags["role"] = src.Role
	}
	if err := k.Load(values(flags), nil); err != nil {
		return Loaded{}, &Error{[]string{"flags: " + err.Error()}}
	}
	return finish(k.Raw(), variables, environ, src.Files)
}

// finish turns the merged tree into checked options.
func finish(tree map[string]any, variables map[string]string, environ []string, files bool) (Loaded, error) {
	d := decoder{variables: variables}
	var o server.Options
	d.decode(&o, tree)
	if len(d.problems) > 0 {
		return Loaded{}, &Error{d.problems}
	}
	notes := pickUp(&o, environ)
	o = o.WithDefaults()
	if d.replaced(reflect.ValueOf(o), ""); len(d.problems) > 0 {
		return Loaded{}, &Error{d.problems}
	}
	err := o.Validate()
	if files && o.TLS.KeyFile != "" {
		_, unusable := o.TLS.Load()
		err = errors.Join(err, unusable)
	}
	if err != nil {
		return Loaded{}, &Error{problems(err)}
	}
	return Loaded{o, notes}, nil
}

// problems flattens joined errors.
func problems(err error) []string {
	// A joined error itself, not one inside err.
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, problems(e)...)
		}
		return all
	}
	return []string{err.Error()}
}

// readFile reads a configuration file within the limit.
func readFile(name string) ([]byte, error) {
	data, err := readLimited(name, maxFileBytes)
	if err != nil {
		return nil, &Error{[]string{fileName(name) + ": " + err.Error()}}
	}
	return data, nil
}

func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", pathless(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", pathless(err))
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("is larger than %d bytes", limit)
	}
	return data, nil
}

// pathless returns a file error without the operation and the path.
func pathless(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

func fileName(name string) string { return filepath.Base(name) }

// parseYAML reads one document that is a mapping. The parser refuses repeated keys and aliases
// that multiply.
func parseYAML(data []byte) (map[string]any, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, yamlError(data, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one YAML document")
	}
	if root := document.Content[0]; root.Kind != yaml.MappingNode && root.Tag != "!!null" {
		return nil, errors.New("is not a mapping of keys to values")
	}
	var tree map[string]any
	if err := document.Decode(&tree); err != nil {
		return nil, yamlError(data, err)
	}
	return tree, nil
}

// indentedByTab matches a line whose indentation has a tab, which the parser only calls a wrong
// character.
var indentedByTab = regexp.MustCompile(`(?m)^ *\t`)

// yamlError returns the parser's message in one line, without the package name.
func yamlError(data []byte, err error) error {
	text := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	if strings.HasSuffix(text, "cannot start any token") && indentedByTab.Match(data) {
		text += "; a line begins with a tab, and YAML is indented by spaces"
	}
	return errors.New(text)
}

// kubernetes matches the variables that Kubernetes sets in every container for a service whose
// name begins with "forebay".
var kubernetes = regexp.MustCompile(`^FOREBAY_(?:[A-Z0-9_]*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$`)

// clean drops variables that are not options of the server.
func clean(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(clientVariables, name) || kubernetes.MatchString(name)
	})
}

// variable is a value from the environment: a text whose type is not known yet.
type variable string

// transform returns the key of a variable. The delimiter joins its parts, and overlay splits them
// again. An empty variable is as good as none: templates leave such. A default instead of what the
// file says would be another database.
func transform(variables map[string]string, name, value string) (string, any) {
	if value == "" {
		return "", nil
	}
	parts := strings.Split(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "__")
	variables[strings.Join(parts, ".")] = name
	return strings.Join(parts, delimiter), variable(value)
}

// overlay puts variables over the values of the file. A variable inside a section keeps the other
// keys of the section. A variable for a whole section replaces it.
func overlay(from, into map[string]any) error {
	keys := make([]string, 0, len(from))
	for key := range from {
		keys = append(keys, key)
	}
	slices.Sort(keys) // a section sorts before its keys
	for _, key := range keys {
		at := into
		parts := strings.Split(key, delimiter)
		for _, part := range parts[:len(parts)-1] {
			part = entry(at, part)
			section, ok := at[part].(map[string]any)
			if !ok && at[part] != nil {
				return fmt.Errorf("%s: sets a part of %s, which is not a section", envName(parts), part)
			}
			if !ok {
				section = map[string]any{}
				at[part] = section
			}
			at = section
		}
		at[entry(at, parts[len(parts)-1])] = from[key]
	}
	return nil
}

// entry returns the key of a section that a part of a variable's name means. Names in a file may
// have capitals, and those of variables have nothing else. A new key is in small letters.
func entry(section map[string]any, part string) string {
	if _, ok := section[part]; ok {
		return part
	}
	found := part
	for key := range section {
		if strings.EqualFold(key, part) {
			if found != part {
				return part // it could be either
			}
			found = key
		}
	}
	return found
}

func envName(parts []string) string { return envPrefix + strings.ToUpper(strings.Join(parts, "__")) }

// values is a koanf provider of values in memory.
type values map[string]any

func (values) ReadBytes() ([]byte, error)      { return nil, errors.ErrUnsupported }
func (v values) Read() (map[string]any, error) { return v, nil }
