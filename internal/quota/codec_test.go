package quota

import (
	"reflect"
	"testing"
)

// TestEveryFieldIsStored compares what is encoded with what a State has, so that a new field
// cannot be forgotten. Each number is either among the scalars once, or derived.
func TestEveryFieldIsStored(t *testing.T) {
	var s State
	stored := map[uintptr]int{}
	for _, p := range s.scalars() {
		stored[reflect.ValueOf(p).Pointer()]++
	}
	var walk func(name string, v reflect.Value)
	walk = func(name string, v reflect.Value) {
		switch {
		case name == ".capacity.window.sum": // of slices
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(name+"."+v.Type().Field(i).Name, v.Field(i))
			}
		case v.Kind() == reflect.Array:
			for i := range v.Len() {
				walk(name+"[]", v.Index(i))
			}
		case v.Kind() == reflect.Int64:
			if n := stored[v.UnsafeAddr()]; n != 1 {
				t.Errorf("%s is stored %d times", name, n)
			}
			delete(stored, v.UnsafeAddr())
		}
	}
	walk("", reflect.ValueOf(&s).Elem())
	if len(stored) > 0 {
		t.Errorf("%d scalars are not fields", len(stored))
	}
}
