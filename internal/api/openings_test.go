package api

import (
	"strconv"
	"testing"
	"time"
)

// An opening has a row for a minute. However many there are, so many and no more are remembered.
func TestOpenings(t *testing.T) {
	var o openings
	at := time.UnixMilli(1e12)
	it := opening{"key_1", "acme", "job_1/input"}
	o.add(it, at)
	for _, c := range []struct {
		it    opening
		after time.Duration
		known bool
	}{
		{it, 59 * time.Second, true}, {it, time.Minute, false}, {opening{"key_2", "acme", "job_1/input"}, 0, false},
		{opening{"key_1", "ops", "job_1/input"}, 0, false}, {opening{"key_1", "acme", "job_1/result"}, 0, false},
	} {
		if o.known(c.it, at.Add(c.after)) != c.known {
			t.Errorf("%v after %v: known %t", c.it, c.after, !c.known)
		}
	}
	for i := range 3*maxOpenings + 5 {
		o.add(opening{"key_1", "acme", strconv.Itoa(i)}, at)
		if len(o.rows) > maxOpenings {
			t.Fatalf("%d are remembered", len(o.rows))
		}
	}
	if !o.known(opening{"key_1", "acme", strconv.Itoa(3*maxOpenings + 4)}, at) {
		t.Error("the latest is forgotten")
	}
}

func TestWholeRunes(t *testing.T) {
	for text, want := range map[string]string{"": "", "a": "a", "aü": "aü", "a\xc3": "a", "\xe2\x82": "", "x€": "x€", "x\xe2\x82": "x", "x\xf0\x9f\x98": "x", "\xff\xff": "\xff\xff"} {
		if got := string(wholeRunes([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
