package servicebus

import (
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/servicebus/content"
)

// Each SDK writes addresses in its own way.
func TestParseAddress(t *testing.T) {
	for address, want := range map[string]node{
		"orders":                                 {path: "orders"},
		"/orders":                                {path: "orders"},
		"amqps://bus.example.com:5671/eu/orders": {path: "eu/orders"},
		"sb://localhost/events/Subscriptions/all":               {path: "events/Subscriptions/all"},
		"events/subscriptions/all/$DeadLetterQueue/$management": {path: "events/subscriptions/all/$DeadLetterQueue", management: true},
		"/eu%2Forders/$Management":                              {path: "eu/orders", management: true},
		"$management":                                           {management: true},
		"$CBS":                                                  {cbs: true},
		"orders$management":                                     {path: "orders$management"},
		"amqps://localhost":                                     {},
		"50%":                                                   {path: "50%"},
	} {
		if got := parseAddress(address); got != want {
			t.Errorf("%q is %+v, not %+v", address, got, want)
		}
	}
}

// A delivery tag has the bytes of a lock in the order of .NET.
func TestTokenOfTag(t *testing.T) {
	lock := queue.Lock{Seq: 0x0102030405060708, Token: -7}
	token, err := tokenOfTag(content.DeliveryTag(content.LockToken(lock)))
	if err != nil || token != message.NewToken(lock.Seq, lock.Token) {
		t.Errorf("%s (%v)", token, err)
	}
	for _, tag := range [][]byte{nil, {1}, make([]byte, 17)} {
		if _, err := tokenOfTag(tag); err == nil {
			t.Errorf("%x was taken for a tag", tag)
		}
	}
}

func TestTicks(t *testing.T) {
	// .NET's documentation of DateTime.Ticks counts from 0001-01-01.
	if got := ticks(time.Date(1, 1, 1, 0, 0, 0, 100, time.UTC)); got != 1 {
		t.Errorf("100 ns after the first day are %d ticks", got)
	}
	if got := ticks(time.Unix(0, 0)); got != 621_355_968_000_000_000 {
		t.Errorf("1970 is %d", got)
	}
}

// The answer to a session filter is of the kind that the client sent, with the id.
func TestSessionFilter(t *testing.T) {
	for what, value := range map[string]any{"null": nil, "text": "a", "described": wire.Described{Descriptor: uint64(0x137000000C), Value: nil}} {
		source := &wire.Source{Filter: wire.Map{{Key: wire.Symbol("other"), Value: int32(1)}, {Key: wire.Symbol(filterSession), Value: value}}}
		f := sessionFilterOf(source)
		if !f.asked || f.id != "" && what != "text" {
			t.Fatalf("%s: %+v", what, f)
		}
		f.id = "b"
		answer := f.answered(source).Filter
		if len(answer) != 1 || answer[0].Key != wire.Symbol(filterSession) {
			t.Fatalf("%s: answered with %+v", what, answer)
		}
		told := answer[0].Value
		if d, ok := told.(wire.Described); ok {
			told = d.Value
		} else if what == "described" {
			t.Errorf("%s: answered with %T", what, told)
		}
		if told != "b" || source.Filter[1].Value != value {
			t.Errorf("%s: answered with %v, and the client's is %v", what, told, source.Filter[1].Value)
		}
	}
	if f := sessionFilterOf(&wire.Source{}); f.asked {
		t.Error("a source without filters asks for a session")
	}
}
