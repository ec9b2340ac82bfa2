package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forebayhq/forebay"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	secretType   = reflect.TypeFor[forebay.Secret]()
)

// decoder sets options from a tree of YAML values and collects all problems. Its messages contain
// no values, because one could be a misplaced secret.
type decoder struct {
	variables map[string]string // key → environment variable it came from
	problems  []string
	zeros     []string // keys of numbers and durations that are given as 0
}

func (d *decoder) decode(into any, tree map[string]any) {
	d.structure(reflect.ValueOf(into).Elem(), "", tree)
}

func (d *decoder) bad(key, format string, args ...any) {
	where := key
	if name, ok := d.variables[strings.ToLower(key)]; ok {
		where = name
	}
	d.problems = append(d.problems, where+": "+fmt.Sprintf(format, args...))
}

func under(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// value sets v from raw. null leaves it unchanged.
func (d *decoder) value(v reflect.Value, key string, raw any) {
	if text, ok := raw.(variable); ok {
		if raw, ok = d.fromVariable(v.Type(), key, string(text)); !ok {
			return
		}
	}
	if raw == nil {
		return
	}
	switch {
	case v.Type() == durationType:
		d.duration(v, key, raw)
		return
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem(), key, raw)
		return
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		tree, ok := asMap(raw)
		if i := short(v.Type()); !ok && i >= 0 {
			d.value(v.Field(i), key, raw)
			return
		}
		if !ok {
			d.bad(key, "must be a section of keys and values, not %s", kindOf(raw))
			return
		}
		if v.Kind() == reflect.Struct {
			d.structure(v, key, tree)
		} else {
			d.mapping(v, key, tree)
		}
	case reflect.Slice:
		list, ok := raw.([]any)
		if !ok {
			d.bad(key, "must be a list, not %s", kindOf(raw))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		for i, item := range list {
			d.value(v.Index(i), fmt.Sprintf("%s[%d]", key, i), item)
		}
	default:
		d.scalar(v, key, raw)
	}
}

// short returns the index of the field that a plain value of the section sets in a file, or -1.
func short(t reflect.Type) int {
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("short") != "" {
				return i
			}
		}
	}
	return -1
}

// isText reports whether a value of the type can be given as text.
func isText(t reflect.Type) bool {
	if i := short(t); i >= 0 {
		t = t.Field(i).Type
	}
	return t.Kind() == reflect.String
}

// fromVariable parses the text of a variable for an option of type t.
func (d *decoder) fromVariable(t reflect.Type, key, text string) (any, bool) {
	if t.Kind() == reflect.String || t == durationType {
		return text, true
	}
	if i := short(t); i >= 0 && t.Field(i).Type.Kind() == reflect.Slice {
		t = t.Field(i).Type
	}
	var raw any
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		d.bad(key, "is not valid YAML")
		return nil, false
	}
	if list, ok := raw.(string); ok && t.Kind() == reflect.Slice && isText(t.Elem()) {
		var items []any
		for item := range strings.SplitSeq(list, ",") {
			items = append(items, strings.TrimSpace(item))
		}
		return items, true
	}
	return raw, true
}

func (d *decoder) scalar(v reflect.Value, key string, raw any) {
	switch v.Kind() {
	case reflect.String:
		if text, ok := raw.(string); ok {
			v.SetString(text)
			return
		}
		d.bad(key, "must be text, not %s; put it in quotes", kindOf(raw))
	case reflect.Bool:
		if on, ok := raw.(bool); ok {
			v.SetBool(on)
			return
		}
		d.bad(key, "must be true or false, not %s", kindOf(raw))
	case reflect.Int, reflect.Int64:
		n, ok := asInt(raw)
		if !ok || v.OverflowInt(n) {
			d.bad(key, "must be a whole number, not %s", kindOf(raw))
			return
		}
		v.SetInt(n)
		d.given(v, key)
	case reflect.Uint64:
		n, ok := asInt(raw)
		big, isBig := raw.(uint64)
		if isBig {
			v.SetUint(big)
			return
		}
		if !ok || n < 0 {
			d.bad(key, "must be a whole number of at least 0, not %s", kindOf(raw))
			return
		}
		v.SetUint(uint64(n))
		d.given(v, key)
	case reflect.Float64:
		f, ok := raw.(float64)
		if n, whole := asInt(raw); whole {
			f, ok = float64(n), true
		}
		if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
			d.bad(key, "must be a number, not %s", kindOf(raw))
			return
		}
		v.SetFloat(f)
		d.given(v, key)
	default:
		panic("config: an option of kind " + v.Kind().String()) // TestEveryOption covers every kind
	}
}

func (d *decoder) duration(v reflect.Value, key string, raw any) {
	text, ok := raw.(string)
	if n, whole := asInt(raw); whole && n == 0 {
		text, ok = "0s", true
	}
	if text == "" && ok {
		return
	}
	duration, err := time.ParseDuration(text)
	if !ok || err != nil {
		d.bad(key, "must be a duration with a unit, such as 500ms, 30s or 5m")
		return
	}
	v.SetInt(int64(duration))
	d.given(v, key)
}

// given notes the key of a number that is 0.
func (d *decoder) given(v reflect.Value, key string) {
	if v.IsZero() {
		d.zeros = append(d.zeros, key)
	}
}

const notZero = "must not be 0; leave it out for the default of %v"

// replaced reports the numbers that are given as 0 and that defaults have replaced in v, or will
// replace later, which the tag default says. To leave an option out asks for its default. A 0 asks
// for something else that there is not.
func (d *decoder) replaced(v reflect.Value, key string) {
	switch v.Kind() {
	case reflect.Struct:
		known := fields(v.Type())
		for _, name := range slices.Sorted(maps.Keys(known)) {
			field, at := v.Field(known[name]), under(key, name)
			if later := v.Type().Field(known[name]).Tag.Get("default"); later != "" && slices.Contains(d.zeros, at) {
				d.bad(at, notZero, later)
				continue
			}
			d.replaced(field, at)
		}
	case reflect.Map:
		for _, name := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
			d.replaced(v.MapIndex(name), under(key, name.String()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			d.replaced(v.Index(i), fmt.Sprintf("%s[%d]", key, i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			d.replaced(v.Elem(), key)
		}
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Float64:
		if !v.IsZero() && slices.Contains(d.zeros, key) {
			d.bad(key, notZero, v.Interface())
		}
	}
}

// structure sets the fields of an option struct by their koanf names.
func (d *decoder) structure(v reflect.Value, key string, tree map[string]any) {
	known := fields(v.Type())
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		at := under(key, name)
		if i, ok := known[name]; ok {
			d.value(v.Field(i), at, tree[name])
			continue
		}
		if base, ok := strings.CutSuffix(name, "_file"); ok {
			if i, ok := known[base]; ok && v.Field(i).Type() == secretType {
				if tree[base] != nil {
					d.bad(at, "is given together with %s; keep one", base)
					continue
				}
				d.secretFile(v.Field(i), at, tree[name])
				continue
			}
		}
		d.unknown(at, name, known)
	}
}

func (d *decoder) unknown(at, name string, known map[string]int) {
	shown := fmt.Sprintf("%.64q", name)
	const few = 12
	names := slices.Sorted(maps.Keys(known))
	near := nearest(name, names)
	switch {
	case near != "":
		d.bad(at, "unknown key %s; did you mean %s?", shown, near)
	case len(names) <= few:
		d.bad(at, "unknown key %s; there is %s", shown, strings.Join(names, ", "))
	default:
		d.bad(at, "unknown key %s", shown)
	}
}

// fields maps the koanf names of a struct to field indexes.
func fields(t reflect.Type) map[string]int {
	known := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("koanf"); name != "" && name != "-" {
			known[name] = i
		}
	}
	return known
}

func (d *decoder) mapping(v reflect.Value, key string, tree map[string]any) {
	v.Set(reflect.MakeMapWithSize(v.Type(), len(tree)))
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		at, raw := under(key, name), tree[name]
		item := reflect.New(v.Type().Elem()).Elem()
		if base, ok := strings.CutSuffix(name, "_file"); ok && item.Type() == secretType {
			if _, both := tree[base]; both {
				d.bad(at, "is given together with %s; keep one", base)
				continue
			}
			name = base
			d.secretFile(item, at, raw)
		} else {
			d.value(item, at, raw)
		}
		v.SetMapIndex(reflect.ValueOf(name), item)
	}
}

// secretFile sets a secret to the content of a file, without the line end that editors add.
func (d *decoder) secretFile(v reflect.Value, key string, raw any) {
	var name string
	d.value(reflect.ValueOf(&name).Elem(), key, raw)
	if name == "" {
		return
	}
	data, err := readLimited(name, maxSecretBytes)
	if err != nil {
		d.bad(key, "the file %s", err)
		return
	}
	v.SetString(strings.TrimRight(string(data), "\r\n"))
}

func asMap(raw any) (map[string]any, bool) {
	switch m := raw.(type) {
	case map[string]any:
		return m, true
	case map[any]any:
		out := make(map[string]any, len(m))
		for name, value := range m {
			out[fmt.Sprint(name)] = value
		}
		return out, true
	}
	return nil, false
}

func asInt(raw any) (int64, bool) {
	switch n := raw.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

func kindOf(raw any) string {
	switch raw.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case int, int64, uint64:
		return "a whole number"
	case float64:
		return "a number"
	case []any:
		return "a list"
	case map[string]any, map[any]any:
		return "a section"
	case time.Time:
		return "a time"
	}
	return "this"
}

// nearest returns the known name that is closest to a misspelt one, or "".
func nearest(name string, known []string) string {
	best, limit := "", 1+len(name)/4
	for _, candidate := range known {
		if len(name) > 64 {
			return ""
		}
		if distance := editDistance(name, candidate); distance <= limit {
			best, limit = candidate, distance-1
		}
	}
	return best
}

// editDistance is the Levenshtein distance.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, above, row[j])
			}
			diagonal, row[j+1] = above, cost
		}
	}
	return row[len(b)]
}
