package wire

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// TestEmptySections has the header and properties as peers of old versions need them: all fields.
func TestEmptySections(t *testing.T) {
	m := &Message{Header: &Header{}, MessageAnnotations: Map{}, Properties: &Properties{}, Data: [][]byte{{}}}
	want := unhex(t, "005370 c00605 42 40 40 42 43"+"005372 c10100"+"005373 c00e0d 40404040404040404040404040"+"005375 a000")
	got, err := m.Append(nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the message is encoded as %x, %v, want %x", got, err, want)
	}
	if got, err := DecodeMessage(want); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("the message is decoded as %+v, %v, want %+v", got, err, m)
	}
	for _, body := range []*Message{{}, {HasValue: true}, {Sequences: []List{{}}}, {Value: nil, HasValue: true, Footer: Map{{Symbol("k"), nil}}}} {
		encoded, err := body.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeMessage(encoded); err != nil || !reflect.DeepEqual(got, body) {
			t.Errorf("%x is decoded as %+v, %v, want %+v", encoded, got, err, body)
		}
	}
}

func TestMessageIDs(t *testing.T) {
	for _, id := range []any{nil, "", "id", uint64(0), uint64(1 << 40), sampleUUID, []byte{}, []byte("id")} {
		m := &Message{Properties: &Properties{MessageID: id, CorrelationID: id}}
		encoded, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeMessage(encoded); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%#v is decoded as %+v, %v", id, got.Properties, err)
		}
	}
	if _, err := (&Message{Properties: &Properties{MessageID: int64(1)}}).Append(nil); !errors.Is(err, errMessageID) {
		t.Errorf("a message id that is a long: %v", err)
	}
	wrong := unhex(t, "005373 c0 03 01 5501")
	if _, err := DecodeMessage(wrong); err == nil {
		t.Error("a message id that is a long is accepted")
	}
}

func TestSections(t *testing.T) {
	m, _ := samples()
	encoded, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sections, err := Sections(encoded)
	if err != nil {
		t.Fatal(err)
	}
	var codes []uint64
	var joined []byte
	for _, s := range sections {
		codes = append(codes, s.Code)
		joined = append(joined, s.Raw...)
		alone, err := DecodeMessage(s.Raw)
		if err != nil {
			t.Errorf("section %#x alone: %v", s.Code, err)
		}
		if again, err := alone.Append(nil); err != nil || !bytes.Equal(again, s.Raw) {
			t.Errorf("section %#x is %x, and %x again, %v", s.Code, s.Raw, again, err)
		}
		if _, rest, err := Decode(s.Value()); err != nil || len(rest) > 0 {
			t.Errorf("the value of section %#x: %x left, %v", s.Code, rest, err)
		}
	}
	want := []uint64{CodeHeader, CodeDeliveryAnnotations, CodeMessageAnnotations, CodeProperties, CodeApplicationProperties, CodeData, CodeData, CodeFooter}
	if !reflect.DeepEqual(codes, want) || !bytes.Equal(joined, encoded) {
		t.Errorf("sections %#x, want %#x; together they are the message: %t", codes, want, bytes.Equal(joined, encoded))
	}
	if sections[0].Raw = append(sections[0].Raw, 1); encoded[len(sections[0].Raw)-1] == 1 {
		t.Error("appending to a section changes the next one")
	}
}

func TestWrongMessages(t *testing.T) {
	value := "005377 40"
	for _, c := range []struct{ bytes, want string }{
		{"40", "it is not a section of a message"},
		{"00 5301 40", "an unknown section of a message"},
		{"00 a3 03 616263 40", "an unknown section of a message"},
		{"005373 45" + "005370 45", "a section of a message is out of order or there twice"},
		{"005370 45" + "005370 45", "a section of a message is out of order or there twice"},
		{value + value, "a section of a message is out of order or there twice"},
		{"005375 a000" + value, "a message has bodies of two kinds"},
		{"005375 a000" + "005376 45", "a message has bodies of two kinds"},
		{"005370 a000", "value of a section"},
		{"005371 45", "value of a section"},
		{"005373 c10100", "value of a section"},
		{"005374 40", "value of a section"},
		{"005375 a100", "value of a section"},
		{"005376 c10100", "value of a section"},
		{"005377", "the data end too early"},
		{"005377 a105", "the data end too early"},
		{"005375 b0ffffffff", "the data end too early"},
		{"005377 05", "an unknown constructor"},
		{"005377 46", "an unknown constructor"},
		{"005377 a200", "an unknown constructor"},
	} {
		b := unhex(t, c.bytes)
		var wrong *DecodeError
		if m, err := DecodeMessage(b); !errors.As(err, &wrong) || m != nil || c.want != "value of a section" && wrong.Problem != c.want {
			t.Errorf("%s is decoded as %+v, %v, want the error %q", c.bytes, m, err, c.want)
		}
		sections, err := Sections(b)
		if !errors.As(err, &wrong) || sections != nil || !bytes.Contains([]byte(wrong.Problem), []byte(c.want)) {
			t.Errorf("%s has the sections %v, %v, want the error %q", c.bytes, sections, err, c.want)
		}
	}
	for _, m := range []*Message{
		{Data: [][]byte{{}}, HasValue: true}, {Data: [][]byte{{}}, Sequences: []List{{}}}, {Sequences: []List{{}}, HasValue: true}, {Footer: Map{{1, 1}}},
	} {
		if got, err := m.Append([]byte("before")); err == nil || string(got) != "before" {
			t.Errorf("%+v is encoded as %x, %v, want an error", m, got, err)
		}
	}
}

func TestDecodedBinaryIsTheInput(t *testing.T) {
	encoded, err := (&Message{Data: [][]byte{[]byte("data")}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := DecodeMessage(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if encoded[len(encoded)-1] = 'b'; string(m.Data[0]) != "datb" || cap(m.Data[0]) != 4 {
		t.Errorf("data are %q of capacity %d, want the bytes of the input", m.Data[0], cap(m.Data[0]))
	}
}

func TestCoordinated(t *testing.T) {
	for _, want := range []Composite{&Declare{}, &Declare{GlobalID: []byte("global")}, &Discharge{TxnID: []byte("txn"), Fail: true}} {
		encoded, err := (&Message{Header: &Header{}, Value: want, HasValue: true}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCoordinated(encoded); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is decoded as %+v, %v", want, got, err)
		}
		m, err := DecodeMessage(encoded)
		if d, ok := m.Value.(Described); err != nil || !ok || d.Descriptor != want.Code() {
			t.Errorf("%+v in a message is decoded as %#v, %v", want, m.Value, err)
		}
	}
	for _, m := range []*Message{{}, {HasValue: true}, {Value: &Accepted{}, HasValue: true}, {Data: [][]byte{{}}}, {Value: Described{uint64(codeDischarge), List{}}, HasValue: true}} {
		encoded, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeCoordinated(encoded); err == nil || got != nil {
			t.Errorf("%+v is decoded as %+v", m, got)
		}
	}
}

// TestListsHaveAllFields checks the encoding that old clients need, which read by position: a
// small ulong as the descriptor, and null for absent fields.
func TestListsHaveAllFields(t *testing.T) {
	for _, c := range []struct {
		v      Composite
		fields int
	}{
		{&Open{}, 10}, {&Begin{}, 8}, {&Attach{}, 14}, {&Flow{}, 11}, {&Transfer{}, 11}, {&Disposition{}, 6}, {&Detach{}, 3}, {&End{}, 1}, {&Close{}, 1},
		{&Error{}, 3}, {&Source{}, 11}, {&Target{}, 7}, {&Coordinator{}, 1}, {&Declare{}, 1}, {&Discharge{}, 2}, {&Declared{}, 1}, {&TransactionalState{}, 2},
		{&Received{}, 2}, {&Accepted{}, 0}, {&Rejected{}, 1}, {&Released{}, 0}, {&Modified{}, 3},
		{&SASLMechanisms{}, 1}, {&SASLInit{}, 3}, {&SASLChallenge{}, 1}, {&SASLResponse{}, 1}, {&SASLOutcome{}, 2},
	} {
		b, err := Append(nil, c.v)
		if err != nil {
			t.Fatal(err)
		}
		if head := []byte{0x00, ConstructorSmallUlong, byte(c.v.Code()), ConstructorList8, byte(len(b) - 5), byte(c.fields)}; !bytes.HasPrefix(b, head) {
			t.Errorf("%T is encoded as %x, which does not begin with %x", c.v, b, head)
		}
	}
	for name, code := range codes {
		v, _, err := Decode(append([]byte{0x00, 0xa3, byte(len(name))}, name+"\x45"...))
		if d, ok := v.(Described); err != nil || !ok || d.Descriptor != Symbol(name) {
			t.Errorf("%s is decoded as %#v, %v", name, v, err)
		}
		if code >= CodeHeader {
			continue
		}
		if names[code] == "" || "amqp:"+names[code]+":list" != name {
			t.Errorf("the type %#x, %s, is called %q", code, name, names[code])
		}
	}
}

func TestEveryCompositeIsReadAsWritten(t *testing.T) {
	state := &TransactionalState{TxnID: []byte("txn"), Outcome: &Accepted{}}
	failure := &Error{ErrTransactionRollback, "why", Map{{Symbol("k"), "v"}}}
	for _, want := range []Composite{
		&Open{
			ContainerID: "c", Hostname: "h", MaxFrameSize: new(uint32(512)), ChannelMax: new(uint16(0)), IdleTimeout: new(uint32(0)), OutgoingLocales: []Symbol{"en-US"},
			IncomingLocales: []Symbol{"en-US", "de"}, OfferedCapabilities: []Symbol{"a"}, DesiredCapabilities: []Symbol{"b"}, Properties: Map{{Symbol("p"), List{nil}}},
		},
		&Open{},
		&Begin{RemoteChannel: new(uint16(9)), NextOutgoingID: 1 << 31, IncomingWindow: 1, OutgoingWindow: 2, HandleMax: new(uint32(3)), OfferedCapabilities: []Symbol{"a"}, DesiredCapabilities: []Symbol{"b"}, Properties: Map{}},
		&Attach{
			Name: "n", Handle: 4, Role: RoleReceiver, SenderSettleMode: new(SenderMixed), ReceiverSettleMode: new(ReceiverFirst),
			Source: &Source{
				Address: new(""), Durable: 2, ExpiryPolicy: "never", Timeout: 5, Dynamic: true, DynamicNodeProperties: Map{{Symbol("lifetime-policy"), Described{uint64(0x2b), List{}}}}, DistributionMode: "move",
				Filter: Map{{Symbol("f"), nil}}, DefaultOutcome: &Modified{DeliveryFailed: true}, Outcomes: []Symbol{"amqp:accepted:list"}, Capabilities: []Symbol{"queue"},
			},
			Target:    &Target{Address: new("a"), Durable: 1, ExpiryPolicy: "link-detach", Timeout: 6, Dynamic: true, DynamicNodeProperties: Map{}, Capabilities: []Symbol{"c"}},
			Unsettled: Map{{[]byte("tag"), Described{uint64(codeAccepted), List{}}}}, IncompleteUnsettled: true, InitialDeliveryCount: new(uint32(1)), MaxMessageSize: new(uint64(1<<64 - 1)),
			OfferedCapabilities: []Symbol{"a"}, DesiredCapabilities: []Symbol{"b"}, Properties: Map{{Symbol("p"), uint64(1)}},
		},
		&Attach{Name: "n", Source: &Source{}, Coordinator: &Coordinator{Capabilities: []Symbol{"amqp:local-transactions"}}},
		&Flow{NextIncomingID: new(uint32(1)), IncomingWindow: 2, NextOutgoingID: 3, OutgoingWindow: 4, Handle: new(uint32(0)), DeliveryCount: new(uint32(5)), LinkCredit: new(uint32(6)), Available: new(uint32(7)), Drain: true, Echo: true, Properties: Map{}},
		&Flow{},
		&Transfer{Handle: 1, DeliveryID: new(uint32(0)), DeliveryTag: []byte{}, MessageFormat: new(uint32(0x80013700)), Settled: true, More: true, ReceiverSettleMode: new(ReceiverSecond), State: state, Resume: true, Aborted: true, Batchable: true},
		&Transfer{},
		&Disposition{Role: RoleReceiver, First: 1, Last: new(uint32(1 << 31)), Settled: true, State: state, Batchable: true},
		&Disposition{State: &OtherState{Described{Symbol("com.example:state"), List{uint8(1)}}}},
		&Detach{Handle: 1, Closed: true, Error: failure},
		&End{failure}, &End{}, &Close{failure}, &Close{},
		&SASLMechanisms{[]Symbol{"PLAIN", "ANONYMOUS"}}, &SASLMechanisms{[]Symbol{}}, &SASLInit{"PLAIN", []byte("\x00u\x00p"), "h"}, &SASLInit{Mechanism: "ANONYMOUS"},
		&SASLChallenge{[]byte("c")}, &SASLResponse{[]byte{}}, &SASLOutcome{SASLSystemTemp, []byte("data")}, &SASLOutcome{},
		failure, &Error{Condition: "c"}, &Target{}, &Source{}, &Coordinator{}, &Declare{}, &Declare{"global"}, &Discharge{[]byte("t"), true},
		&Received{1, 1 << 40}, &Accepted{}, &Rejected{}, &Rejected{failure}, &Released{}, &Modified{}, &Modified{true, true, Map{{Symbol("a"), int32(1)}}}, &Declared{[]byte("t")}, state, &TransactionalState{TxnID: []byte{}},
	} {
		encoded, err := Append(nil, want)
		if err != nil {
			t.Errorf("%#v: %v", want, err)
			continue
		}
		got, rest, err := DecodeComposite(append(encoded, "rest"...))
		if err != nil || !reflect.DeepEqual(got, want) || string(rest) != "rest" {
			t.Errorf("%#v is decoded as %#v, %q, %v", want, got, rest, err)
		}
		v, _, err := Decode(encoded)
		if d, ok := v.(Described); err != nil || !ok || d.Descriptor != want.Code() {
			t.Errorf("%#v as a value is %#v, %v", want, v, err)
		}
		p, ok := want.(Performative)
		if got, _, err := DecodePerformative(encoded); ok != (err == nil) || ok && !reflect.DeepEqual(got, p) {
			t.Errorf("%#v as a performative is %#v, %v", want, got, err)
		}
		for cut := range encoded { // every prefix is an error
			if got, _, err := DecodeComposite(encoded[:cut]); err == nil {
				t.Errorf("%d of %d bytes of %#v are decoded as %#v", cut, len(encoded), want, got)
			}
		}
	}
}

// Microsoft's SDKs for Python encode delivery annotations behind everything else.
func TestDeliveryAnnotationsMayComeLast(t *testing.T) {
	late := unhex(t, "005370 c0020141"+"005375 a00161"+"005378 c10100"+"005371 c10100")
	m, err := DecodeMessage(late)
	if err != nil || m.DeliveryAnnotations == nil || len(m.Data) != 1 || m.Footer == nil {
		t.Fatalf("decoded as %+v, %v", m, err)
	}
	sections, err := Sections(late)
	if err != nil || len(sections) != 4 || sections[3].Code != CodeDeliveryAnnotations {
		t.Errorf("the sections are %v, %v", sections, err)
	}
	for _, twice := range [][]byte{append(slices.Clone(late), late[len(late)-6:]...), append(unhex(t, "005371 c10100"), late...), append(slices.Clone(late), unhex(t, "005373 45")...)} {
		if _, err := DecodeMessage(twice); err == nil {
			t.Errorf("%x is decoded", twice)
		}
		if _, err := Sections(twice); err == nil {
			t.Errorf("%x has sections", twice)
		}
	}
}
