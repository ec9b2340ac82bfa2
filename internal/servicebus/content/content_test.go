package content_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/amqp/wire"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/bus/message"
	"github.com/forebayhq/forebay/internal/queue"
	"github.com/forebayhq/forebay/internal/servicebus/content"
	"pgregory.net/rapid"
)

type fatal interface {
	Helper()
	Fatalf(string, ...any)
}

func encode(t fatal, m *wire.Message) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return b
}

// read is what FromAMQP reads of one message.
func read(t fatal, m *wire.Message) message.Content {
	t.Helper()
	all, err := content.FromAMQP(content.FormatMessage, encode(t, m))
	if err != nil || len(all) != 1 {
		t.Fatalf("read %d messages: %v", len(all), err)
	}
	return all[0]
}

// delivered is a message as its first receiver gets it.
func delivered(c message.Content) *bus.Message {
	until := time.UnixMilli(1_900_000_000_000).UTC()
	return &bus.Message{Lock: queue.Lock{Seq: 7, Token: 9}, MessageContent: c, EnqueuedSeq: 7, State: forebay.MessageActive, Deliveries: 1,
		EnqueuedAt: time.UnixMilli(1_800_000_000_000).UTC(), LockedUntil: &until}
}

// written is what ToAMQP writes, decoded.
func written(t fatal, m *bus.Message, o content.Options) (*wire.Message, []byte) {
	t.Helper()
	b, err := content.ToAMQP(m, o)
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	w, err := wire.DecodeMessage(b)
	if err != nil {
		t.Fatalf("decode %x: %v", b, err)
	}
	return w, b
}

// sectionsOf are the sections of a message that a receiver gets as they were sent.
func sectionsOf(t fatal, b []byte) (kept [][]byte) {
	t.Helper()
	all, err := wire.Sections(b)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, s := range all {
		if s.Code >= wire.CodeProperties {
			kept = append(kept, s.Raw)
		}
	}
	return kept
}

// nameless reports whether an id is none: it has no character or byte.
func nameless(id any) bool {
	b, binary := id.([]byte)
	return id == nil || id == "" || binary && len(b) == 0
}

// checkSame checks that a receiver gets what was sent.
func checkSame(t fatal, sent *wire.Message, raw []byte, got *wire.Message, out []byte) {
	t.Helper()
	before, after := sectionsOf(t, raw), sectionsOf(t, out)
	if sent.Properties == nil || nameless(sent.Properties.MessageID) { // it shows the id that it got
		if id, ok := got.Properties.MessageID.(string); !ok || !strings.HasPrefix(id, "msg_") {
			t.Fatalf("the id is %v", got.Properties.MessageID)
		}
		is, was := *got.Properties, wire.Properties{}
		if is.MessageID = nil; sent.Properties != nil {
			was = *sent.Properties
			was.MessageID = nil
		}
		if a, b := encode(t, &wire.Message{Properties: &is}), encode(t, &wire.Message{Properties: &was}); !bytes.Equal(a, b) {
			t.Fatalf("the properties are %x, were %x", a, b)
		}
		properties := func(s []byte) bool { return s[2] == byte(wire.CodeProperties) }
		before, after = slices.DeleteFunc(before, properties), slices.DeleteFunc(after, properties)
	}
	if !slices.EqualFunc(before, after, bytes.Equal) {
		t.Fatalf("was sent as\n%x\nand is\n%x", before, after)
	}
	for _, p := range sent.MessageAnnotations {
		key := p.Key.(wire.Symbol)
		if key == "x-opt-sequence-number" || key == "x-opt-lock-token" {
			continue
		}
		was := encode(t, &wire.Message{MessageAnnotations: wire.Map{p}})
		v, found := got.MessageAnnotations.Get(key)
		if is := encode(t, &wire.Message{MessageAnnotations: wire.Map{{Key: key, Value: v}}}); !found || !bytes.Equal(was, is) {
			t.Fatalf("annotation %s is %v, was %v", key, v, p.Value)
		}
	}
	if sent.Header != nil && (sent.Header.Durable != got.Header.Durable || wire.ValueOr(sent.Header.Priority, wire.DefaultPriority) != wire.ValueOr(got.Header.Priority, wire.DefaultPriority)) {
		t.Fatalf("the header is %+v, was %+v", got.Header, sent.Header)
	}
	if got.Header.DeliveryCount != 0 {
		t.Fatalf("%d earlier deliveries", got.Header.DeliveryCount)
	}
}

// Whatever message is sent, its receiver gets the same, and so does a receiver of what the first
// sends on.
func TestMessagesLeaveAsTheyCame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sent := drawMessage(t)
		raw := encode(t, sent)
		all, err := content.FromAMQP(content.FormatMessage, raw)
		if err != nil {
			t.Fatalf("%v", err)
		}
		c := all[0]
		if c.MessageID == "" || !json.Valid(append([]byte("["), append(slices.Clone(c.Properties), ']')...)) {
			t.Fatalf("read as %+v", c)
		}
		got, out := written(t, delivered(c), content.Options{})
		checkSame(t, sent, raw, got, out)
		again, err := content.FromAMQP(content.FormatMessage, out)
		if err != nil {
			t.Fatalf("%v", err)
		}
		d := again[0]
		if d.MessageID != c.MessageID && !strings.HasPrefix(d.MessageID, "msg_") || d.SessionID != c.SessionID || d.Subject != c.Subject || d.CorrelationID != c.CorrelationID ||
			!bytes.Equal(d.Properties, c.Properties) || !bytes.Equal(d.Body, c.Body) || d.Text != c.Text || d.PartitionKey != c.PartitionKey {
			t.Fatalf("sent on it is read as %+v, was %+v", d, c)
		}
	})
}

// What has changed since a message was sent is written anew, and nothing else.
func TestChangesGoFirst(t *testing.T) {
	t.Parallel()
	subject, to, typ, session := "old", "there", wire.Symbol("text/plain"), "s"
	sequence := uint32(5)
	made := time.UnixMilli(1_700_000_000_000).UTC()
	sent := &wire.Message{
		MessageAnnotations: wire.Map{{Key: wire.Symbol("x-opt-partition-key"), Value: "s"}, {Key: wire.Symbol("mine"), Value: uint16(1)}},
		Properties: &wire.Properties{MessageID: wire.UUID{1}, UserID: []byte("me"), To: &to, Subject: &subject, ContentType: &typ, GroupID: &session,
			GroupSequence: &sequence, CorrelationID: uint64(7), CreationTime: made, AbsoluteExpiryTime: made.Add(time.Hour)},
		ApplicationProperties: wire.Map{{Key: "u", Value: uint16(3)}, {Key: "gone", Value: int8(1)}, {Key: "none", Value: nil}, {Key: "f", Value: float32(1.5)}},
		HasValue:              true, Value: wire.Map{{Key: "a", Value: int32(1)}},
		Footer: wire.Map{{Key: wire.Symbol("f"), Value: true}},
	}
	c := read(t, sent)
	if c.TTL != time.Hour || string(c.Body) != `{"a":1}` || !c.Text || c.MessageID != "01000000-0000-0000-0000-000000000000" || c.CorrelationID != "7" || c.PartitionKey != "s" {
		t.Errorf("read as %+v", c)
	}
	c.Subject, c.To, c.PartitionKey, c.SessionID = "new", "", "t", "t"
	c.Properties = []byte(`{"u":3,"f":2.5,"none":"some","more":{"type":"uuid","value":"00000000-0000-0000-0000-000000000001"}}`)
	c.Body = []byte("edited")
	m := delivered(c)
	expires := m.EnqueuedAt.Add(time.Minute)
	m.ExpiresAt, m.DeadLetterReason, m.DeadLetterSource = &expires, "why", "orders"
	got, _ := written(t, m, content.Options{DeadLetter: true})
	p := got.Properties
	if *p.Subject != "new" || p.To != nil || *p.GroupID != "t" || p.MessageID != any(wire.UUID{1}) || p.CorrelationID != any(uint64(7)) || string(p.UserID) != "me" ||
		*p.GroupSequence != 5 || *p.ContentType != typ || !p.AbsoluteExpiryTime.Equal(made.Add(time.Minute)) || !p.CreationTime.Equal(made) {
		t.Errorf("properties are %+v", p)
	}
	want := wire.Map{{Key: "u", Value: uint16(3)}, {Key: "none", Value: "some"}, {Key: "f", Value: 2.5}, {Key: "more", Value: wire.UUID{15: 1}}, {Key: "DeadLetterReason", Value: "why"}}
	if !slices.Equal(got.ApplicationProperties, want) {
		t.Errorf("application properties are %v", got.ApplicationProperties)
	}
	if len(got.Data) != 1 || string(got.Data[0]) != "edited" || got.HasValue || len(got.Footer) != 1 {
		t.Errorf("the body is %q, the footer %v", got.Data, got.Footer)
	}
	if *got.Header.TTL != 60_000 || got.Header.DeliveryCount != 1 {
		t.Errorf("the header is %+v", got.Header)
	}
	for key, want := range map[string]any{"x-opt-partition-key": "t", "mine": uint16(1), "x-opt-deadletter-source": "orders"} {
		if v, _ := got.MessageAnnotations.Get(key); v != want {
			t.Errorf("%s is %v, not %v", key, v, want)
		}
	}
}

// Receivers learn what the queue knows of a message.
func TestWhatReceiversLearn(t *testing.T) {
	t.Parallel()
	m := delivered(message.Content{MessageID: "m", Subject: "s", Body: []byte("x"), Text: true, Properties: []byte(`{"t":{"type":"time","value":"2030-01-02T03:04:05Z"},"n":1}`)})
	m.EnqueuedSeq, m.Deliveries = 3, 4
	annotations := func(m *bus.Message, o content.Options) map[wire.Symbol]any {
		t.Helper()
		got, _ := written(t, m, o)
		all := map[wire.Symbol]any{}
		for _, p := range got.MessageAnnotations {
			all[p.Key.(wire.Symbol)] = p.Value
		}
		return all
	}
	for key, want := range map[wire.Symbol]any{"x-opt-sequence-number": int64(7), "x-opt-enqueue-sequence-number": int64(3), "x-opt-message-state": int32(0),
		"x-opt-enqueued-time": m.EnqueuedAt, "x-opt-locked-until": *m.LockedUntil} {
		if got := annotations(m, content.Options{})[key]; got != want {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if all := annotations(m, content.Options{Peek: true}); all["x-opt-locked-until"] != nil || len(all) != 4 {
		t.Errorf("a peek tells %v", all)
	}
	for state, want := range map[forebay.MessageState]int32{forebay.MessageActive: 0, forebay.MessageDeferred: 1, forebay.MessageScheduled: 2} {
		m := *m
		m.State = state
		if got := annotations(&m, content.Options{Peek: true})["x-opt-message-state"]; got != want {
			t.Errorf("%s is %v", state, got)
		}
	}
	free := *m
	free.LockedUntil, free.Token = nil, 0
	for what, c := range map[string]struct {
		m    *bus.Message
		o    content.Options
		want uint32
	}{
		"delivered": {m, content.Options{}, 3}, "peeked while locked": {m, content.Options{Peek: true}, 3},
		"peeked": {&free, content.Options{Peek: true}, 4}, "dead": {m, content.Options{DeadLetter: true}, 4},
	} {
		if got, _ := written(t, c.m, c.o); got.Header.DeliveryCount != c.want {
			t.Errorf("%s: %d earlier deliveries, not %d", what, got.Header.DeliveryCount, c.want)
		}
	}
	got, raw := written(t, m, content.Options{LockToken: true})
	token, _ := got.DeliveryAnnotations.Get("x-opt-lock-token")
	if id, is := token.(wire.UUID); !is || content.LockOf(id) != m.Lock || id != content.LockToken(m.Lock) {
		t.Errorf("the lock token is %v", token)
	}
	if tag := content.DeliveryTag(wire.UUID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}); !bytes.Equal(tag, []byte{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15}) {
		t.Errorf("the tag is %v", tag)
	}
	if got.Properties.MessageID != "m" || *got.Properties.Subject != "s" || string(got.Data[0]) != "x" {
		t.Errorf("a message of the HTTP API is %+v", got)
	}
	if n, _ := got.ApplicationProperties.Get("n"); n != int64(1) {
		t.Errorf("n is %v", n)
	}
	// Some clients read fixed positions.
	all, err := wire.Sections(raw)
	if err != nil || all[0].Value()[2] != 5 || all[3].Code != wire.CodeProperties || all[3].Value()[2] != 13 {
		t.Errorf("the header or the properties lack fields: %x: %v", raw, err)
	}
}

// The HTTP API shows what is nearest. Stored messages depend on it.
func TestNearest(t *testing.T) {
	t.Parallel()
	sent := wire.Map{
		{Key: "ubyte", Value: uint8(1)}, {Key: "ulong", Value: uint64(math.MaxUint64)}, {Key: "small", Value: uint64(5)}, {Key: "float", Value: float32(0.5)}, {Key: "char", Value: wire.Char('ä')},
		{Key: "symbol", Value: wire.Symbol("sym")}, {Key: "decimal", Value: wire.Decimal32{1, 2, 3, 4}}, {Key: "null", Value: nil}, {Key: "list", Value: wire.List{int32(1)}},
		{Key: "span", Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:timespan"), Value: int64(10)}},
		{Key: "offset", Value: wire.Described{Descriptor: wire.Symbol("com.microsoft:datetime-offset"), Value: int64(621355968000000001)}},
		{Key: "uuid", Value: wire.UUID{15: 9}}, {Key: "binary", Value: []byte{255}}, {Key: "time", Value: time.UnixMilli(1).UTC()}, {Key: "nan", Value: math.NaN()},
	}
	const want = `{"binary":{"type":"bytes","value":"/w=="},"char":"ä","decimal":{"type":"bytes","value":"AQIDBA=="},"float":0.5,` +
		`"nan":{"type":"float","value":"NaN"},"offset":{"type":"time","value":"1970-01-01T00:00:00.0000001Z"},"small":5,"span":10,"symbol":"sym",` +
		`"time":{"type":"time","value":"1970-01-01T00:00:00.001Z"},"ubyte":1,"ulong":1.8446744073709552e+19,"uuid":{"type":"uuid","value":"00000000-0000-0000-0000-000000000009"}}`
	if c := read(t, &wire.Message{ApplicationProperties: sent, Data: [][]byte{{}}}); string(c.Properties) != want {
		t.Errorf("properties are\n%s, not\n%s", c.Properties, want)
	}
	for _, c := range []struct {
		m      *wire.Message
		want   string
		isText bool
	}{
		{&wire.Message{Data: [][]byte{[]byte("text\n")}}, "text\n", true},
		{&wire.Message{Data: [][]byte{{1, 'x'}}}, "\x01x", false},
		{&wire.Message{Data: [][]byte{{0xff}}}, "\xff", false},
		{&wire.Message{Data: [][]byte{[]byte("a"), {}, []byte("b")}}, "ab", true},
		{&wire.Message{HasValue: true, Value: "text\x00"}, "text\x00", true},
		{&wire.Message{HasValue: true, Value: []byte("bytes")}, "bytes", true},
		{&wire.Message{HasValue: true}, "null", true},
		{&wire.Message{HasValue: true, Value: uint64(math.MaxUint64)}, "18446744073709551615", true},
		{&wire.Message{Sequences: []wire.List{{int8(-1), "x"}, {nil}}}, `[-1,"x",null]`, true},
		{&wire.Message{HasValue: true, Value: wire.Map{{Key: wire.Symbol("s"), Value: wire.List{true, 1.5, float32(0.1), math.Inf(1), wire.Char('<'), []byte{1}}},
			{Key: int32(2), Value: wire.Array{int64(1)}}, {Key: "d", Value: wire.Described{Descriptor: uint64(1), Value: wire.Decimal32{1}}},
			{Key: "t", Value: time.UnixMilli(1).UTC()}}}, `{"s":[true,1.5,0.1,"+Inf","\u003c","AQ=="],"2":[1],"d":"AQAAAA==","t":"1970-01-01T00:00:00.001Z"}`, true},
		{&wire.Message{HasValue: true, Value: wire.List{strings.Repeat("\x00", 1<<18)}}, "", true},
		{&wire.Message{Properties: &wire.Properties{}}, "", true},
	} {
		if got := read(t, c.m); string(got.Body) != c.want || got.Text != c.isText {
			t.Errorf("the body %v is %.100q, text %t", c.m, got.Body, got.Text)
		}
	}
}

// The messages of a batch are those inside, all or none.
func TestBatches(t *testing.T) {
	t.Parallel()
	one := func(id string) []byte {
		return encode(t, &wire.Message{Properties: &wire.Properties{MessageID: id}, Data: [][]byte{[]byte(id)}})
	}
	batch := func(m *wire.Message) ([]message.Content, error) {
		return content.FromAMQP(content.FormatBatch, encode(t, m))
	}
	all, err := batch(&wire.Message{Properties: &wire.Properties{MessageID: "envelope"}, Data: [][]byte{one("a"), one("b")}})
	if err != nil || len(all) != 2 || all[0].MessageID != "a" || string(all[1].Body) != "b" {
		t.Errorf("read %+v: %v", all, err)
	}
	many := make([][]byte, content.MaxBatch+1)
	for i := range many {
		many[i] = one("m")
	}
	if all, err := batch(&wire.Message{Data: many[1:]}); err != nil || len(all) != content.MaxBatch {
		t.Errorf("read %d: %v", len(all), err)
	}
	for what, c := range map[string]struct {
		m    *wire.Message
		want wire.Symbol
	}{
		"no message":   {&wire.Message{Properties: &wire.Properties{}}, content.ErrArgument},
		"a value":      {&wire.Message{HasValue: true, Value: "x"}, content.ErrArgument},
		"one too many": {&wire.Message{Data: many}, wire.ErrMessageSizeExceeded},
		"no messages":  {&wire.Message{Data: [][]byte{one("a"), []byte("x")}}, wire.ErrDecodeError},
		"a bad one":    {&wire.Message{Data: [][]byte{one("a"), one(strings.Repeat("x", forebay.MaxIDCharacters+1))}}, content.ErrArgument},
	} {
		all, err := batch(c.m)
		var e *wire.Error
		if !errors.As(err, &e) || e.Condition != c.want || all != nil {
			t.Errorf("%s: %d messages, %v", what, len(all), err)
		}
	}
}

// What breaks a rule is refused with the condition that Service Bus has for it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	long, control := strings.Repeat("x", 70<<10), "a\x00b"
	group := "s"
	app := func(key, value any) *wire.Message {
		return &wire.Message{ApplicationProperties: wire.Map{{Key: key, Value: value}}, Data: [][]byte{{}}}
	}
	annotated := func(key string, value any) *wire.Message {
		return &wire.Message{MessageAnnotations: wire.Map{{Key: wire.Symbol(key), Value: value}}, Properties: &wire.Properties{GroupID: &group}, Data: [][]byte{{}}}
	}
	for what, c := range map[string]struct {
		m    *wire.Message
		want wire.Symbol
	}{
		"a large property":           {app("k", long), wire.ErrMessageSizeExceeded},
		"a long key":                 {app(long, "x"), content.ErrArgument},
		"a key of no text":           {app(int32(1), "x"), wire.ErrDecodeError},
		"a key twice":                {&wire.Message{ApplicationProperties: wire.Map{{Key: "k", Value: 1.0}, {Key: "k", Value: 2.0}}, Data: [][]byte{{}}}, wire.ErrDecodeError},
		"a subject of no clean text": {&wire.Message{Properties: &wire.Properties{Subject: &control}, Data: [][]byte{{}}}, content.ErrArgument},
		"a long binary id":           {&wire.Message{Properties: &wire.Properties{MessageID: make([]byte, 65)}, Data: [][]byte{{}}}, content.ErrArgument},
		"another partition":          {annotated("x-opt-partition-key", "t"), content.ErrArgument},
		"a partition key of no text": {annotated("x-opt-partition-key", int64(1)), content.ErrArgument},
		"a via key of no text":       {annotated("x-opt-via-partition-key", int64(1)), content.ErrArgument},
		"a schedule of no time":      {annotated("x-opt-scheduled-enqueue-time", int64(1)), content.ErrArgument},
		"a schedule too far away":    {annotated("x-opt-scheduled-enqueue-time", time.UnixMilli(1<<52)), content.ErrArgument},
	} {
		_, err := content.FromAMQP(content.FormatMessage, encode(t, c.m))
		var e *wire.Error
		if !errors.As(err, &e) || e.Condition != c.want || strings.Contains(e.Description, long) {
			t.Errorf("%s: %.300v", what, err)
		}
	}
	for what, c := range map[string]struct {
		format uint32
		b      []byte
		want   wire.Symbol
	}{
		"another format":           {7, nil, wire.ErrNotImplemented},
		"no sections":              {0, []byte("GET / HTTP/1.1"), wire.ErrDecodeError},
		"a subject that is a list": {0, []byte{0x00, 0x53, 0x73, 0xc0, 5, 4, 0x40, 0x40, 0x40, 0x45}, wire.ErrDecodeError},
		"fields that are missing":  {0, []byte{0x00, 0x53, 0x73, 0xc0, 2, 9, 0x40}, wire.ErrDecodeError},
		"an odd map":               {0, []byte{0x00, 0x53, 0x74, 0xc1, 2, 1, 0x40}, wire.ErrDecodeError},
	} {
		_, err := content.FromAMQP(c.format, c.b)
		var e *wire.Error
		if !errors.As(err, &e) || e.Condition != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	// An annotation of the receiver's side that a sender gives is not taken for one.
	if c := read(t, annotated("x-opt-locked-until", "soon")); bytes.Contains(c.AMQP, []byte("x-opt-locked-until")) {
		t.Error("what a sender says of the lock is kept")
	}
}

// textReasons returns properties without those that receivers take for the text of why a message
// was dead-lettered, and that are no text. They are not sent on.
func textReasons(t *testing.T, properties []byte) []byte {
	all := forebay.Properties{}
	if len(properties) == 0 {
		return properties
	}
	if err := json.Unmarshal(properties, &all); err != nil {
		t.Fatal(err)
	}
	dropped := false
	for _, key := range []string{"DeadLetterReason", "DeadLetterErrorDescription"} {
		if v, found := all[key]; found {
			if _, text := v.(string); !text {
				delete(all, key)
				dropped = true
			}
		}
	}
	if !dropped {
		return properties
	}
	var c message.Content
	if err := c.SetProperties(all); err != nil {
		t.Fatal(err)
	}
	return c.Properties
}

// Any input is a message, which leaves as it came, or an error with a condition.
func FuzzFromAMQP(f *testing.F) {
	rapid.Check(f, func(t *rapid.T) { f.Add(uint32(0), encode(t, drawMessage(t))) })
	f.Add(content.FormatMessage, encode(f, &wire.Message{ApplicationProperties: wire.Map{{Key: "DeadLetterReason", Value: []byte("-Z")}, {Key: "n", Value: int64(1)}}, HasValue: true}))
	f.Add(content.FormatBatch, encode(f, &wire.Message{Data: [][]byte{encode(f, &wire.Message{HasValue: true, Value: "x"})}}))
	f.Fuzz(func(t *testing.T, format uint32, b []byte) {
		all, err := content.FromAMQP(format, b)
		var e *wire.Error
		if err != nil {
			if !errors.As(err, &e) || e.Condition == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, c := range all {
			if len(c.AMQP) == 0 || len(c.AMQP) > len(b)+8 {
				t.Fatalf("%d bytes of sections", len(c.AMQP))
			}
			m := delivered(c)
			_, out := written(t, m, content.Options{LockToken: true})
			again, err := content.FromAMQP(content.FormatMessage, out)
			if err != nil {
				t.Fatalf("sent on: %v", err)
			}
			d := again[0]
			if !bytes.Equal(d.Body, c.Body) || !bytes.Equal(d.Properties, textReasons(t, c.Properties)) || d.SessionID != c.SessionID || d.Subject != c.Subject || d.CorrelationID != c.CorrelationID {
				t.Fatalf("read as %+v, and sent on as %+v", c, d)
			}
		}
	})
}
