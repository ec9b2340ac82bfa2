package azurebus

import (
	"maps"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/forebayhq/forebay"
)

// Rules with actions may give events properties of every type. The client must be able to write
// all of them: an event that it cannot write would hold up those behind it for ever.
func TestEventsWithEveryTypeOfProperty(t *testing.T) {
	sent := forebay.Properties{
		"text": "a", "number": int64(1), "float": 1.5, "flag": true, "time": time.UnixMilli(1).UTC(), "bytes": []byte("b"), "uuid": forebay.UUID{1, 2},
	}
	var s Sink
	m := s.message(&forebay.Message{NewMessage: forebay.NewMessage{MessageID: "m", Properties: sent}})
	data, err := (&amqp.Message{ApplicationProperties: m.ApplicationProperties}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var got amqp.Message
	if err := got.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	read := properties(got.ApplicationProperties)
	if at, is := read["time"].(time.Time); !is || !at.Equal(time.UnixMilli(1)) || string(read["bytes"].([]byte)) != "b" {
		t.Errorf("%v, %v", read["time"], read["bytes"])
	}
	for _, name := range []string{"time", "bytes"} {
		delete(read, name)
		delete(sent, name)
	}
	if !maps.Equal(read, sent) {
		t.Errorf("read %v of %v", read, sent)
	}
}
