// Package amqp serves AMQP 1.0: the server side of connections, sessions and links.
//
// It follows the OASIS standard "Advanced Message Queuing Protocol (AMQP) Version 1.0" of
// 29 October 2012. Sections of it are named "§part.section": part 2 is the transport, part 3
// messaging, part 4 transactions, part 5 security. Package wire reads and writes what is sent.
//
// A [Server] serves connections by [Server.ServeConn], whatever they run over. It speaks the
// protocol by itself: headers, SASL, Open and Close, heartbeats, sessions and their windows, link
// credit, frames of a large message joined and split. A [Handler] decides about nodes and
// messages:
//
//   - When the peer wants to send, it accepts an [Incoming] link and gets each message as a
//     [Delivery]. It settles them in any order, from any goroutine.
//   - When the peer wants to receive, it accepts an [Outgoing] link, waits for credit, and sends.
//     It is told what the peer says of the messages.
//
// Links are not resumed: a link that is detached is closed, and what was not settled is for the
// handler to decide (§2.6.13).
//
// # Goroutines
//
// A connection has two goroutines, which read and write. Each link whose handler runs has one
// more. Handler.AttachIncoming usually returns at once; Handler.AttachOutgoing may stay and send.
// What is to be written is encoded by whoever has it to say. It is written in one go by the
// writer when it has written what was before. The server's answers to single deliveries wait as
// states, and are told as ranges then.
//
// Callbacks run on the reader. While one runs, nothing more of its connection is read.
//
// # Limits
//
// Nothing that a peer does takes more than the [Options] allow:
//
//   - A frame is at most MaxFrameSize; before Open it is 8 KiB at most.
//   - A peer has HandshakeTimeout to authenticate and open, and IdleTimeout for each frame.
//   - What it may not do ends the link, the session or the connection, whichever is smallest,
//     with the condition that the standard names.
//   - A peer that does not take what is sent to it is cut off after WriteTimeout. Until then at
//     most 128 KiB of deliveries wait to be written, and senders wait. The reader waits at twice
//     as much, so that no peer can pile up answers.
//   - Payload that is received and not settled, or waits to be written, is bounded by
//     MaxHeldBytes, and counts for Memory. So do sessions, links and unsettled deliveries.
//   - Credit and session windows of the peer are kept. Its own are not enforced, because clients
//     in use do not keep to them. Their excess waits in the network, by MaxUnsettled.
//
// An idle connection holds a read buffer of 2 KiB, and no other.
package amqp
