package quota

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"unsafe"
)

// notStored are fields that follow from others or from the configuration, and the places of what
// older versions stored.
var notStored = map[string]bool{
	".capacity.timeline.changes":                  true,
	".capacity.window.sum":                        true,
	".capacity.estimate.factors.found":            true,
	".capacity.estimate.factors.middle":           true,
	".capacity.estimate.factors.widths":           true,
	".capacity.estimate.unnamed.found":            true,
	".capacity.estimate.unnamed.middle":           true,
	".capacity.estimate.unnamed.widths":           true,
	".capacity.estimate.sources[].factors.found":  true,
	".capacity.estimate.sources[].factors.middle": true,
	".capacity.estimate.sources[].factors.widths": true,
	".pacing.short.alone":                         true,
	".pacing.bySlice":                             true,
	".gone":                                       true,
}

// fields calls check for each field of a state, by turns, when it is the only one that is set.
// check sets it back. Of a list, the fields of one element are set.
func fields(name string, v reflect.Value, check func(name string, v reflect.Value)) {
	if notStored[name] {
		return
	}
	v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() // private ones can be set so
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fields(name+"."+v.Type().Field(i).Name, v.Field(i), check)
		}
	case reflect.Array:
		for i := range v.Len() {
			fields(name+"[]", v.Index(i), check)
		}
	case reflect.Slice:
		one := reflect.MakeSlice(v.Type(), 1, 1)
		v.Set(one)
		check(name, v)
		v.Set(one)
		fields(name+"[]", v.Index(0), check)
		v.SetZero()
	default:
		switch {
		case v.CanInt():
			v.SetInt(1)
		case v.CanUint():
			v.SetUint(1)
		default:
			v.SetBool(true)
		}
		check(name, v)
	}
}

// TestEveryFieldIsStored sets each field alone. A field that is not encoded is lost, and so is one
// that takes no part in choosing the version.
func TestEveryFieldIsStored(t *testing.T) {
	var s State
	places := map[uintptr]int{}
	for _, p := range s.scalars() {
		places[reflect.ValueOf(p).Pointer()]++
	}
	for i := range s.gone {
		delete(places, reflect.ValueOf(&s.gone[i]).Pointer())
	}
	fields("", reflect.ValueOf(&s).Elem(), func(name string, v reflect.Value) {
		if n := places[v.UnsafeAddr()]; n > 1 {
			t.Errorf("%s is stored %d times", name, n)
		}
		delete(places, v.UnsafeAddr())
		b, _ := s.MarshalBinary()
		var back State
		lost := back.UnmarshalBinary(b) == nil // some are not plausible alone
		back.window.sum = Amount{}             // of slices
		lost = lost && !reflect.DeepEqual(s, back)
		v.SetZero()
		without, _ := s.MarshalBinary()
		if lost || bytes.Equal(b, without) {
			t.Errorf("%s is lost in version %d", name, b[0])
		}
	})
	if len(places) > 0 {
		t.Errorf("%d scalars are not fields", len(places))
	}
}

//go:embed testdata/stored_states.txt
var storedStates string

// TestStatesOfEachVersionAreRead reads states as they were stored, one of each version. They are
// stored again as they were, so that older processes can go on.
func TestStatesOfEachVersionAreRead(t *testing.T) {
	lines := strings.Fields(storedStates)
	if len(lines) != stateVersion-oldestVersion+1 {
		t.Fatalf("%d states", len(lines))
	}
	for i, line := range lines {
		stored, err := hex.DecodeString(line)
		if err != nil || stored[0] != byte(oldestVersion+i) {
			t.Fatalf("line %d is of version %d: %v", i+1, stored[0], err)
		}
		var s State
		if err := s.UnmarshalBinary(stored); err != nil {
			t.Errorf("version %d: %v", stored[0], err)
		}
		if s.seq != 4 || s.window.sum[Requests] != 3 {
			t.Errorf("version %d: %d reservations, %d in the window", stored[0], s.seq, s.window.sum[Requests])
		}
		if again, _ := s.MarshalBinary(); !bytes.Equal(again, stored) {
			t.Errorf("version %d is stored again as version %d, and differs", stored[0], again[0])
		}
	}
}
