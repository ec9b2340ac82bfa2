// Observer stands between clients and a server. It passes everything on, and checks each answer
// against OpenAI's OpenAPI file (openapi.json.gz, MIT). Its own address /observed tells what it has
// found.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: observer UPSTREAM")
	}
	upstream, err := url.Parse(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	api, err := load()
	if err != nil {
		log.Fatal(err)
	}
	o := &observer{api: api, found: report{Operations: map[string]int{}}}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		ModifyResponse: o.watch,
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0), // clients that leave are part of the checks
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /observed", o.report)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// A proxy must have read a request before its answer begins: net/http closes the body then, and
		// the call that still reads it is broken off.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, mux))
}

// observer keeps what was found.
type observer struct {
	api *contract

	mu      sync.Mutex
	found   report
	waiting sync.WaitGroup // checks under way
}

// report is what /observed tells.
type report struct {
	Operations map[string]int // answers and events checked, by operation
	Faults     []string
}

func (o *observer) report(w http.ResponseWriter, _ *http.Request) {
	o.waiting.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = json.NewEncoder(w).Encode(o.found)
}

// watch has the body of an answer checked once it is read to its end.
func (o *observer) watch(r *http.Response) error {
	op := o.api.find(r.Request.Method, r.Request.URL)
	o.waiting.Add(1)
	r.Body = &watched{ReadCloser: r.Body, ended: func(body []byte, whole bool) {
		defer o.waiting.Done()
		n, faults := op.check(r.StatusCode, r.Header, body, whole)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.found.Operations[op.name] += n
		for _, fault := range faults {
			o.found.Faults = append(o.found.Faults, fmt.Sprintf("%s %s: %d: %s", r.Request.Method, r.Request.URL.Path, r.StatusCode, fault))
		}
	}}
	return nil
}

// watched copies what is read.
type watched struct {
	io.ReadCloser
	read  bytes.Buffer
	whole bool
	once  sync.Once
	ended func(body []byte, whole bool)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.read.Write(p[:n])
	if err == io.EOF {
		w.whole = true
	}
	return n, err
}

func (w *watched) Close() error {
	w.once.Do(func() { w.ended(w.read.Bytes(), w.whole) })
	return w.ReadCloser.Close()
}

// splitEvents returns the data of a stream's events. A stream of OpenAI's API has lines with
// "data:", perhaps one with "event:" before, and comments.
func splitEvents(body []byte) (events []string, faults []string) {
	text := string(body)
	if text != "" && !strings.HasSuffix(text, "\n\n") {
		faults = append(faults, "the stream does not end with a blank line")
	}
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var name, data string
		hasData, onlyComments := false, true
		for line := range strings.SplitSeq(block, "\n") {
			switch field, value, _ := strings.Cut(line, ":"); field {
			case "":
				continue
			case "event":
				name = strings.TrimPrefix(value, " ")
			case "data":
				hasData, data = true, data+strings.TrimPrefix(value, " ")
			default:
				faults = append(faults, fmt.Sprintf("a stream has the line %.80q", line))
			}
			onlyComments = false
		}
		if onlyComments {
			continue
		}
		if !hasData {
			faults = append(faults, "an event has no data")
			continue
		}
		if name != "" {
			var typed struct{ Type string }
			if json.Unmarshal([]byte(data), &typed) != nil || typed.Type != name {
				faults = append(faults, fmt.Sprintf("the event %q has the type %q", name, typed.Type))
			}
		}
		events = append(events, data)
	}
	return events, faults
}
