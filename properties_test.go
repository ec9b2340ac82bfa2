package forebay_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
)

func TestPropertiesInJSON(t *testing.T) {
	id, err := forebay.ParseUUID("00112233-4455-6677-8899-AABBCCDDEEFF")
	if err != nil {
		t.Fatal(err)
	}
	p := forebay.Properties{
		"string": "<x>\x00", "int": int64(-7), "float": 2.0, "small": 1e-300, "infinite": math.Inf(-1), "big": int64(math.MinInt64), "bool": false,
		"time": time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), "bytes": []byte{0, 255}, "uuid": id,
	}
	const want = `{"big":{"type":"int","value":"-9223372036854775808"},"bool":false,"bytes":{"type":"bytes","value":"AP8="},"float":2.0,` +
		`"infinite":{"type":"float","value":"-Inf"},"int":-7,"small":1e-300,"string":"\u003cx\u003e\u0000",` +
		`"time":{"type":"time","value":"2030-01-02T03:04:05.000000006Z"},"uuid":{"type":"uuid","value":"00112233-4455-6677-8899-aabbccddeeff"}}`
	data, err := json.Marshal(p)
	if err != nil || string(data) != want {
		t.Errorf("%v\n got %s\nwant %s", err, data, want)
	}
	var back forebay.Properties
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, p) {
		t.Errorf("back: %v, %v", back, err)
	}
	for in, want := range map[string]any{
		`{"type":"float","value":2}`: 2.0, `{"type":"string","value":"2"}`: "2", `{"type":"bool","value":true}`: true, `1E2`: 100.0, `{"type":"int","value":"3"}`: int64(3),
	} {
		if err := json.Unmarshal([]byte(`{"p":`+in+`}`), &back); err != nil || back["p"] != want {
			t.Errorf("%s is %v (%v), want %v", in, back["p"], err, want)
		}
	}
	for _, in := range []string{`null`, `[]`, `{}`, `{"type":"int"}`, `{"type":"time","value":5}`, `{"type":"time","value":"today"}`, `{"type":"uuid","value":"x"}`,
		`{"type":"bytes","value":"*"}`, `{"type":"int","value":"1","more":1}`, `{"type":"bool","value":"yes"}`, `1e999`, `9223372036854775808`} {
		err := json.Unmarshal([]byte(`{"p":`+in+`}`), &back)
		if forebay.CodeOf(err) != forebay.CodeInvalidRequest || !strings.HasPrefix(err.Error(), "application_properties.p: ") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestPropertiesCheck(t *testing.T) {
	half := strings.Repeat("x", 30<<10)
	for _, c := range []struct {
		p    forebay.Properties
		want forebay.Code // "": none
	}{
		{nil, ""},
		{forebay.Properties{"a": half, "b": []byte(half)}, ""},
		{forebay.Properties{"a": half, "b": half, "c": half}, forebay.CodePayloadTooLarge},
		{forebay.Properties{"a": half + half}, forebay.CodePayloadTooLarge},
		{forebay.Properties{"": 1.0}, forebay.CodeInvalidRequest},
		{forebay.Properties{"a\n\x00\u0085": 1.0}, ""}, // Azure Service Bus takes any text
		{forebay.Properties{"\xff": 1.0}, forebay.CodeInvalidRequest},
		{forebay.Properties{strings.Repeat("n", 128): 1.0}, ""},
		{forebay.Properties{strings.Repeat("n", 129): 1.0}, forebay.CodeInvalidRequest},
		{forebay.Properties{"a": 1}, forebay.CodeInvalidRequest}, // an int is none of the types
		{forebay.Properties{"a": nil}, forebay.CodeInvalidRequest},
		{forebay.Properties{"a": "\xff"}, forebay.CodeInvalidRequest},
		{forebay.Properties{"a": time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, forebay.CodeInvalidRequest},
	} {
		err := c.p.Check()
		if (err == nil) != (c.want == "") || err != nil && forebay.CodeOf(err) != c.want {
			t.Errorf("%.60v: %v, want %q", c.p, err, c.want)
		}
	}
}

// What can be read and is within the limits can be written and read again, unchanged.
func FuzzProperties(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":-0.0,"c":"x","d":true}`, `{"t":{"type":"time","value":"0001-01-01T00:00:00+01:00"}}`, `{"u":{"type":"uuid","value":"00112233-4455-6677-8899-aabbccddeeff"}}`,
		`{"b":{"type":"bytes","value":"AA=="}}`, `{"f":{"type":"float","value":"NaN"}}`, `null`, `{"i":{"type":"int","value":9007199254740993}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p, back forebay.Properties
		if json.Unmarshal(data, &p) != nil || p.Check() != nil {
			return
		}
		written, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &back); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		again, err := json.Marshal(back)
		if err != nil || string(again) != string(written) {
			t.Fatalf("%s became %s (%v)", written, again, err)
		}
	})
}
