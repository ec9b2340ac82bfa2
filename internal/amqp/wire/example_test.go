package wire_test

import (
	"bytes"
	"fmt"

	"github.com/forebayhq/forebay/internal/amqp/wire"
)

// A sender writes a message in a frame, and a receiver reads it.
func Example() {
	message := &wire.Message{
		Properties: &wire.Properties{MessageID: "order-1", Subject: new("order")},
		Data:       [][]byte{[]byte("two apples")},
	}
	payload, err := message.Append(nil)
	if err != nil {
		panic(err)
	}
	transfer := &wire.Transfer{Handle: 0, DeliveryID: new(uint32(7)), DeliveryTag: []byte{1}, MessageFormat: new(uint32(0))}
	frame, err := wire.AppendFrame(nil, wire.FrameAMQP, 1, transfer, payload)
	if err != nil {
		panic(err)
	}

	f, _, err := wire.ReadFrame(bytes.NewReader(frame), wire.MinMaxFrameSize, nil)
	if err != nil {
		panic(err)
	}
	p, payload, err := wire.DecodePerformative(f.Body)
	if err != nil {
		panic(err)
	}
	if t, ok := p.(*wire.Transfer); ok {
		m, err := wire.DecodeMessage(payload)
		if err != nil {
			panic(err)
		}
		fmt.Println("channel", f.Channel, "delivery", *t.DeliveryID, *m.Properties.Subject, string(m.Data[0]))
	}
	// Output: channel 1 delivery 7 order two apples
}

// Sections are copied as they are, so that what one does not understand stays equal.
func ExampleSections() {
	message, err := (&wire.Message{
		Header: &wire.Header{DeliveryCount: 0},
		Value:  wire.Described{Descriptor: wire.Symbol("com.example:celsius"), Value: float32(21.5)}, HasValue: true,
	}).Append(nil)
	if err != nil {
		panic(err)
	}
	sections, err := wire.Sections(message)
	if err != nil {
		panic(err)
	}
	patched, err := (&wire.Message{Header: &wire.Header{DeliveryCount: 1}}).Append(nil)
	if err != nil {
		panic(err)
	}
	for _, s := range sections {
		if s.Code != wire.CodeHeader {
			patched = append(patched, s.Raw...)
		}
	}
	m, err := wire.DecodeMessage(patched)
	fmt.Println(m.Header.DeliveryCount, m.Value, err)
	// Output: 1 {com.example:celsius 21.5} <nil>
}
