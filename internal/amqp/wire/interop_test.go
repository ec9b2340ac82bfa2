package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/ours.txt anew; then run the programs beside it")

// ourFrames are frames that testdata/rhea.js and testdata/pyamqp.py decode from ours.txt.
func ourFrames() []struct {
	name    string
	p       Performative
	payload string
} {
	return []struct {
		name    string
		p       Performative
		payload string
	}{
		{"open", &Open{ContainerID: "client", Hostname: "host", MaxFrameSize: new(uint32(65536)), ChannelMax: new(uint16(4999)), IdleTimeout: new(uint32(60000)), OfferedCapabilities: []Symbol{"a", "b"}}, ""},
		{"begin", &Begin{RemoteChannel: new(uint16(3)), IncomingWindow: 5000, OutgoingWindow: 5000, HandleMax: new(uint32(255))}, ""},
		{"attach", &Attach{
			Name: "link", Handle: 1, SenderSettleMode: new(SenderUnsettled), ReceiverSettleMode: new(ReceiverSecond), InitialDeliveryCount: new(uint32(0)), MaxMessageSize: new(uint64(1 << 20)),
			Source: &Source{Address: new("queue"), Filter: Map{{Symbol("f"), Described{uint64(0x137000000C), nil}}}, DefaultOutcome: &Released{}, Outcomes: []Symbol{"amqp:accepted:list"}},
			Target: &Target{Address: new("t"), Capabilities: []Symbol{"queue"}}, Properties: Map{{Symbol("until"), int64(7)}},
		}, ""},
		{"flow", &Flow{NextIncomingID: new(uint32(1)), IncomingWindow: 5000, OutgoingWindow: 5000, Handle: new(uint32(1)), DeliveryCount: new(uint32(0)), LinkCredit: new(uint32(10)), Drain: true}, ""},
		{"transfer", &Transfer{Handle: 1, DeliveryID: new(uint32(5)), DeliveryTag: sampleUUID[:], MessageFormat: new(uint32(0))}, "payload"},
		{"accepted", &Disposition{Role: RoleReceiver, First: 5, Last: new(uint32(6)), Settled: true, State: &Accepted{}}, ""},
		{"detach", &Detach{Handle: 1, Closed: true, Error: &Error{Condition: ErrNotFound, Description: "why"}}, ""},
		{"close", &Close{}, ""},
	}
}

func TestOurEncodingIsWhatOthersRead(t *testing.T) {
	var b strings.Builder
	for _, f := range ourFrames() {
		frame, err := AppendFrame(nil, FrameAMQP, 3, f.p, []byte(f.payload))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %x\n", f.name, frame)
	}
	ours, _ := samples()
	encoded, err := ours.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "message %x\n", encoded)
	if *update {
		if err := os.WriteFile("testdata/ours.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/ours.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the encoding is not what other programs were shown to decode: run this test with -update, then rhea.js and pyamqp.py in testdata")
	}
}

// theirs returns the lines of a file of testdata, by name.
func theirs(t *testing.T, file string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, digits, _ := cutLast(line)
		if lines[name], err = hex.DecodeString(digits); err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

func cutLast(line string) (before, after string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	return line[:max(i, 0)], line[i+1:], i >= 0
}

func TestWhatOthersEncode(t *testing.T) {
	for _, file := range []string{"rhea.txt", "pyamqp.txt"} {
		t.Run(file, func(t *testing.T) {
			lines := theirs(t, file)
			for name, want := range map[string]any{
				"value ulong": uint64(300), "value long": int64(-5), "value timestamp": sampleTime, "value uuid": sampleUUID,
				"value symbols": Array{Symbol("a"), Symbol("b")}, "value list": List{int32(1), "a", nil, true},
			} {
				if v, rest, err := Decode(lines[name]); err != nil || len(rest) > 0 || !reflect.DeepEqual(v, want) {
					t.Errorf("%s is decoded as %#v, %x, %v, want %#v", name, v, rest, err, want)
				}
			}
			v, _, err := Decode(lines["value map"])
			m, _ := v.(Map)
			if a, ok := m.Get(Symbol("a")); err != nil || !ok || a != float32(0.25) {
				t.Errorf("the map is decoded as %#v, %v", v, err)
			}
			checkTheirMessage(t, lines["message"])
			checkTheirFrames(t, lines)
		})
	}
}

func checkTheirMessage(t *testing.T, encoded []byte) {
	want, _ := samples()
	m, err := DecodeMessage(encoded)
	if err != nil {
		t.Fatalf("message: %v", err)
	}
	p := *m.Properties
	p.CorrelationID = want.Properties.CorrelationID // of another type for each of them
	if !reflect.DeepEqual(&p, want.Properties) {
		t.Errorf("properties are %+v, want %+v", p, want.Properties)
	}
	if !m.Header.Durable || *m.Header.Priority != 7 || *m.Header.TTL != 60000 || m.Header.DeliveryCount != 3 {
		t.Errorf("header is %+v", m.Header)
	}
	if n, _ := m.MessageAnnotations.Get("x-opt-sequence-number"); n != int64(1<<40) {
		t.Errorf("message annotations are %v", m.MessageAnnotations)
	}
	if string(bytes.Join(m.Data, nil)) != "firstsecond" {
		t.Errorf("data are %q", m.Data)
	}
}

func checkTheirFrames(t *testing.T, lines map[string][]byte) {
	frames := map[string]Performative{}
	for name, line := range lines {
		name, ok := strings.CutPrefix(name, "frame ")
		if !ok {
			continue
		}
		f, _, err := ReadFrame(bytes.NewReader(line), 1<<16, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, payload, err := DecodePerformative(f.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if (name == "transfer") != (string(payload) == "payload") {
			t.Errorf("%s has the payload %q", name, payload)
		}
		frames[name] = p
	}
	if v := frames["open"].(*Open); v.ContainerID != "client" || v.Hostname != "host" || *v.MaxFrameSize != 65536 || *v.ChannelMax != 100 || *v.IdleTimeout != 60000 || len(v.Properties) != 1 {
		t.Errorf("open is %+v", v)
	}
	if v := frames["begin"].(*Begin); v.IncomingWindow != 2048 || v.OutgoingWindow != 1<<32-1 {
		t.Errorf("begin is %+v", v)
	}
	if v := frames["attach"].(*Attach); v.Name != "link" || v.Handle != 1 || v.Role != RoleReceiver || *v.ReceiverSettleMode != ReceiverSecond || *v.Source.Address != "queue" || v.Target == nil {
		t.Errorf("attach is %+v", v)
	}
	if v := frames["flow"].(*Flow); *v.NextIncomingID != 1 || *v.Handle != 1 || *v.LinkCredit != 10 || !v.Drain || v.Echo {
		t.Errorf("flow is %+v", v)
	}
	if v := frames["transfer"].(*Transfer); *v.DeliveryID != 5 || string(v.DeliveryTag) != "t" || v.More || v.Settled {
		t.Errorf("transfer is %+v", v)
	}
	v := frames["disposition"].(*Disposition)
	if state, ok := v.State.(*Modified); !ok || v.First != 5 || *v.Last != 6 || !state.DeliveryFailed || len(state.MessageAnnotations) != 1 {
		t.Errorf("disposition is %+v with %+v", v, v.State)
	}
	want := &Error{Condition: ErrNotFound, Description: "why"}
	if v := frames["rejected"].(*Disposition); !reflect.DeepEqual(v.State, &Rejected{want}) {
		t.Errorf("rejected is %+v with %+v", v, v.State)
	}
	if v := frames["detach"].(*Detach); v.Handle != 1 || !v.Closed || !reflect.DeepEqual(v.Error, want) {
		t.Errorf("detach is %+v", v)
	}
	if frames["end"].(*End).Error != nil || frames["close"].(*Close).Error != nil {
		t.Errorf("end is %+v, close %+v", frames["end"], frames["close"])
	}
}
