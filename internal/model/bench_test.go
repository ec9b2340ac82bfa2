//go:build unix

package model

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/forebayhq/forebay"
)

const upstreamEnv = "FOREBAY_BENCH_UPSTREAM"

// TestMain is also the upstream of the benchmark: in a process of its own, so that its processor
// time is not counted.
func TestMain(m *testing.M) {
	if os.Getenv(upstreamEnv) == "" {
		os.Exit(m.Run())
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	fifty := "data: " + strings.Repeat(chunkHello+"\n\ndata: ", 50) + chunkStop + "\n\ndata: " + chunkUsage + "\n\ndata: [DONE]\n\n"
	mux := http.NewServeMux()
	answer := func(pattern, kind, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		})
	}
	answer("/plain/", "application/json", plainAnswer)
	answer("/stream/", "text/event-stream", fifty)
	go func() { // dies with the benchmark
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(listener, mux))
	os.Exit(1)
}

func processorTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// BenchmarkChat is one chat call on loopback, beside a bare HTTP call that throws the answer away;
// cpu-µs/op is the caller's processor time.
func BenchmarkChat(b *testing.B) {
	upstream := exec.Command(os.Args[0])
	upstream.Env = append(os.Environ(), upstreamEnv+"=1")
	upstream.Stderr = os.Stderr
	if _, err := upstream.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := upstream.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := upstream.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = upstream.Process.Kill()
		_ = upstream.Wait() // "signal: killed"
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	base := "http://" + strings.TrimSpace(address)

	measure := func(b *testing.B, call func() error) {
		b.ReportAllocs()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		begun := processorTime(b)
		for b.Loop() {
			if err := call(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N)/1000, "cpu-µs/op")
	}
	request := say("Say hello to the whole world, at length.")
	for _, kind := range []string{"plain", "stream"} {
		b.Run(kind+"/bare", func(b *testing.B) {
			body, err := forebay.EncodeJSON(chatBody{Model: "small", Messages: request.Messages, Stream: true})
			if err != nil {
				b.Fatal(err)
			}
			client := &http.Client{Transport: sharedTransport}
			measure(b, func() error {
				resp, err := client.Post(base+"/"+kind+"/v1/chat/completions", "application/json", bytes.NewReader(body))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				_, err = io.Copy(io.Discard, resp.Body)
				return err
			})
		})
		b.Run(kind+"/provider", func(b *testing.B) {
			p := openAIAt(b, base+"/"+kind, HTTPConfig{})
			measure(b, func() error {
				_, err := p.Chat(b.Context(), request)
				return err
			})
		})
	}
}

// BenchmarkForwardStream passes on a stream of fifty tokens.
func BenchmarkForwardStream(b *testing.B) {
	data := []string{chunkRole}
	for range 50 {
		data = append(data, chunkHello)
	}
	body := frames(append(data, chunkStop, chunkUsage, "[DONE]")...)
	p, err := NewOpenAI(OpenAIConfig{Endpoint: "http://openai.invalid/v1", Model: "m", HTTPConfig: HTTPConfig{Transport: canned{
		status: http.StatusOK, header: http.Header{"Content-Type": {"text/event-stream"}}, body: func() io.Reader { return strings.NewReader(body) }}}})
	if err != nil {
		b.Fatal(err)
	}
	req := ForwardRequest{Path: pathChat, Body: []byte(askStream), Stream: true,
		Begin: func(int, http.Header) error { return nil }, Write: func([]byte) error { return nil }}
	for b.Loop() {
		if _, err := p.(Forwarder).Forward(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
