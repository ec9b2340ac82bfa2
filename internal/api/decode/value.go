// Package decode reads JSON bodies of requests. It is stricter than encoding/json: names match
// with their letter case, and each occurs once. Text that could not be kept is refused. Errors are
// *forebay.Error values and say where in the body they are. It does no I/O.
package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forebayhq/forebay"
)

// Object reads one JSON object into a T. Unlike encoding/json, it matches names with their letter
// case and takes each name once. It refuses text that it could not keep. Its errors say where in
// the body they are.
func Object[T any](data []byte) (T, error) {
	var v T
	data, err := object(data)
	if err != nil {
		return v, err
	}
	return v, decodeValue(reflect.ValueOf(&v).Elem(), "", data)
}

// CheckObject reports a body that is not one JSON object, or that has a name twice in an object.
func CheckObject(data []byte) error {
	data, err := object(data)
	if err != nil {
		return err
	}
	return checkRepeats("", data)
}

// object returns the JSON object that is the whole of data, without the space before it.
func object(data []byte) ([]byte, error) {
	if err := checkJSON(data); err != nil {
		return nil, err
	}
	if data = data[skipSpace(data, 0):]; data[0] != '{' {
		return nil, errNotObject
	}
	return data, nil
}

var rawType = reflect.TypeFor[json.RawMessage]()

// decodeValue decodes the value at the beginning of valid JSON. path is its place in the body.
func decodeValue(v reflect.Value, path string, data []byte) error {
	t := v.Type()
	_, decodesItself := v.Addr().Interface().(json.Unmarshaler)
	switch {
	case t == rawType:
		v.SetBytes(bytes.Clone(data))
		return nil
	case data[0] == 'n': // a field that is null counts as absent; its struct handles that
		return mustBe(path, t)
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		return decodeValue(v.Elem(), path, data)
	case decodesItself:
		return decodeLeaf(v, path, data)
	case t.Kind() == reflect.Struct:
		return decodeStruct(v, path, data)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return decodeSlice(v, path, data)
	case t.Kind() == reflect.Map:
		return decodeMap(v, path, data)
	}
	return decodeLeaf(v, path, data)
}

// decodeLeaf decodes a value without visiting its parts.
func decodeLeaf(v reflect.Value, path string, data []byte) error {
	if unpairedSurrogate(data) {
		return errSurrogate(path)
	}
	if v.Kind() == reflect.Map {
		if err := checkRepeats(path, data); err != nil {
			return err
		}
	}
	err := json.Unmarshal(data, v.Addr().Interface())
	if ours, ok := errors.AsType[*forebay.Error](err); ok { // the type names its own field
		in := *ours
		if i := strings.LastIndexByte(path, '.'); i >= 0 {
			in.Field = path[:i+1] + in.Field
		}
		return &in
	}
	if err != nil {
		return mustBe(path, v.Type())
	}
	return nil
}

func decodeStruct(v reflect.Value, path string, data []byte) error {
	if data[0] != '{' {
		return mustBe(path, v.Type())
	}
	fields := fieldsOf(v.Type())
	seen := make([]bool, len(fields))
	return members(data, func(name string, value []byte) error {
		field, ok := fields[name]
		at := below(path, name)
		if !ok {
			return &forebay.Error{Code: forebay.CodeUnknownField, Field: at, Message: notKnown(fields)}
		}
		if seen[field.number] {
			return errTwice(at)
		}
		seen[field.number] = true
		into := v.FieldByIndex(field.index)
		if value[0] == 'n' && into.Type() != rawType {
			return nil
		}
		if field.maxItems > 0 && value[0] == '[' {
			items := 0
			err := elements(value, func([]byte) error {
				if items++; items > field.maxItems {
					return forebay.Invalid(at, "may have at most %d items", field.maxItems)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return decodeValue(into, at, value)
	})
}

// notKnown says of a field that the object has no such field, and which it has.
func notKnown(fields map[string]field, except ...string) string {
	names := slices.Sorted(maps.Keys(fields))
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(except, name) })
	return "is not a known field; known are " + strings.Join(names, ", ")
}

func decodeSlice(v reflect.Value, path string, data []byte) error {
	if data[0] != '[' {
		return mustBe(path, v.Type())
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 1))
	return elements(data, func(value []byte) error {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := decodeValue(item, fmt.Sprintf("%s[%d]", path, v.Len()), value); err != nil {
			return err
		}
		v.Set(reflect.Append(v, item))
		return nil
	})
}

func decodeMap(v reflect.Value, path string, data []byte) error {
	if data[0] != '{' {
		return mustBe(path, v.Type())
	}
	if unpairedSurrogate(data) {
		return errSurrogate(path)
	}
	if err := checkRepeats(path, data); err != nil {
		return err
	}
	v.Set(reflect.MakeMap(v.Type()))
	return members(data, func(name string, value []byte) error {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := decodeValue(item, below(path, name), value); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), item)
		return nil
	})
}

// checkRepeats reports a name that occurs twice in an object, at any depth.
func checkRepeats(path string, data []byte) error {
	if data[0] != '{' {
		return nil
	}
	seen := map[string]bool{}
	return members(data, func(name string, value []byte) error {
		if seen[name] {
			return errTwice(below(path, name))
		}
		seen[name] = true
		return checkRepeats(below(path, name), value)
	})
}

func errTwice(path string) error { return forebay.Invalid(path, "is given twice") }

func errSurrogate(path string) error {
	return forebay.Invalid(bodyPath(path), "holds half of a surrogate pair (an escape from \\ud800 to \\udfff), which is no character")
}

func mustBe(path string, t reflect.Type) error {
	return forebay.Invalid(bodyPath(path), "must be %s", kindName(t))
}

func kindName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return WantTime
	case t == reflect.TypeFor[forebay.Money]():
		return "a number of US dollars"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "base64 in a string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindName(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "an integer in range"
	}
}

func bodyPath(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

// below returns the path of a member of the value at path.
func below(path, name string) string {
	if path == "" {
		return bodyField(name)
	}
	return path + "." + Shorten(name)
}

// field is a field of a struct, found by its JSON name.
type field struct {
	number   int
	index    []int
	maxItems int // 0: any
}

var knownFields sync.Map // reflect.Type to map[string]field

func fieldsOf(t reflect.Type) map[string]field {
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]field)
	}
	fields := map[string]field{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" { // an embedded struct, whose fields are visible themselves
			continue
		}
		maxItems, _ := strconv.Atoi(f.Tag.Get("maxItems"))
		fields[name] = field{len(fields), f.Index, maxItems}
	}
	knownFields.Store(t, fields)
	return fields
}
