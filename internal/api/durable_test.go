package api_test

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/api"
)

// Addresses and parameters are read as clients of Durable Functions write them.
func TestDurableFunctionsAddresses(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	const azure = "taskHub=hub&connection=Storage&code=fb_none&unknown=1"
	f.wantStatus(f.do("POST", durable+"/Orchestrators/wait/Terminate/?"+azure, `"in"`), 202)
	f.until("Terminate", forebay.OrchestrationRunning)
	for _, path := range []string{"/instances/", "/INSTANCES", "/instances/?" + azure, "/instances?RUNTIMESTATUS=running&" + azure, "/instances/?instanceidprefix=Term", "/instances?showHistory=true"} {
		if all := into[[]instance](t, f.do("GET", durable+path, ""), 200); len(all) != 1 || all[0].ID != "Terminate" {
			t.Errorf("%s lists %+v", path, all)
		}
	}
	for _, path := range []string{"/Instances/Terminate/suspend/?Reason=lunch", "/instances/Terminate/RESUME?" + azure, "/instances/Terminate/raiseevent/Other/?" + azure} {
		f.wantStatus(f.do("POST", durable+path, ""), 202)
	}
	f.wantStatus(f.do("POST", strings.ToUpper(durable)+"/instances/Terminate/RaiseEvent/GO/", `"out"`), 202)
	f.until("Terminate", forebay.OrchestrationCompleted)
	if o := into[instance](t, f.do("GET", durable+"/instances/Terminate/?SHOWINPUT=false&"+azure, ""), 200); string(o.Output) != `"out"` || string(o.Input) != "null" {
		t.Errorf("%+v", o)
	}
	// The slash is part of the id.
	f.wantStatus(f.do("POST", durable+"/orchestrators/echo/a%2Fb?timeout=60", "1"), 200)
	if o := into[instance](t, f.do("GET", durable+"/instances/a%2Fb/", ""), 200); o.ID != "a/b" {
		t.Errorf("%+v", o)
	}
	// Letter case matters in ids.
	for _, path := range []string{"/instances/terminate", "/instances//", "//instances", "instances", "/other/"} {
		wantProblem(t, f.do("GET", durable+path, ""), 404, forebay.CodeNotFound)
	}
	wantProblem(t, f.do("GET", "/v1/jobs?taskHub=hub", ""), 422, forebay.CodeUnknownField)
	// What selects instances in the list is not ignored where they are deleted, whatever else is.
	all := durable + "/instances/?createdTimeFrom=2020-01-01T00:00:00Z"
	for _, narrower := range []string{"&name=echo", "&Top=1"} {
		wantProblem(t, f.do("DELETE", all+narrower, ""), 400, forebay.CodeUnknownField)
	}
	if r := f.wantStatus(f.do("DELETE", all+"&runtimeStatus=completed,FAILED&"+azure, ""), 200); strings.TrimSpace(string(r.body)) != `{"instancesDeleted":2}` {
		t.Errorf("purged %s", r.body)
	}
}

func TestDurableFunctionsTimes(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	f.wantStatus(f.do("POST", durable+"/orchestrators/echo?timeout=60", "1"), 200)
	for _, form := range []string{"%s-11-01T10:00", "%s-11-01", "%s-11-01T10:00:00", "%s-11-01T10:00:00.1234567", "%s-11-01T10:00Z", "%s-11-01T10:00:00.123456Z", "%s-11-01T10:00:00%%2B01:00", "%s-11-01T10:00-05:00"} {
		early, late := fmt.Sprintf(form, "2021"), fmt.Sprintf(form, "2121")
		for query, want := range map[string]int{"createdTimeFrom=" + early: 1, "createdTimeFrom=" + late: 0, "createdTimeFrom=" + early + "&createdTimeTo=" + late: 1} {
			if all := into[[]instance](t, f.do("GET", durable+"/instances?"+query, ""), 200); len(all) != want {
				t.Errorf("%s: %d instances", query, len(all))
			}
		}
	}
	for _, bad := range []string{"now", "2021-13-01", "2021-11-01T25:00", "2021-11-01T10", "10:00"} {
		wantProblem(t, f.do("GET", durable+"/instances?createdTimeFrom="+bad, ""), 400, forebay.CodeInvalidRequest)
	}
}

// A body that is empty is no input, of whatever type it says to be.
func TestEmptyBodyOfAnyType(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	for _, kind := range []string{"application/octet-stream", "text/plain; charset=utf-8", "application/x-www-form-urlencoded", ""} {
		for name, body := range map[string]io.Reader{"none": nil, "chunked": io.MultiReader(strings.NewReader(""))} {
			r := f.wantStatus(f.send(f.request("POST", durable+"/orchestrators/echo?timeout=60", body, "Content-Type", kind)), 200)
			if strings.TrimSpace(string(r.body)) != "null" {
				t.Errorf("%s, %s: %s", kind, name, r.body)
			}
		}
	}
	wantProblem(t, f.send(f.request("POST", durable+"/orchestrators/echo", io.MultiReader(strings.NewReader("a=1")), "Content-Type", "text/plain")), 400, forebay.CodeUnsupportedMedia)
}

// A start names the version of the code.
func TestStartOfAVersion(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	// No worker has that version, so the instance waits.
	f.wantStatus(f.do("POST", durable+"/orchestrators/echo/one?version=7", "1"), 202)
	if o := into[instance](t, f.do("GET", durable+"/instances/one", ""), 202); o.Version != "7" {
		t.Errorf("%+v", o)
	}
	wantProblem(t, f.do("POST", durable+"/orchestrators/echo?version="+strings.Repeat("7", 257), "1"), 400, forebay.CodeInvalidRequest)
}

// The id of an instance that is over starts another.
func TestStartWithAnIDOfBefore(t *testing.T) {
	f := newFixture(t, withOrchestrations(t))
	for _, input := range []string{`"first"`, `"second"`} {
		if r := f.wantStatus(f.do("POST", durable+"/orchestrators/echo/one?timeout=60", input), 200); strings.TrimSpace(string(r.body)) != input {
			t.Errorf("%s led to %s", input, r.body)
		}
	}
	f.wantStatus(f.do("POST", durable+"/orchestrators/wait/one", ""), 202)
	wantProblem(t, f.do("POST", durable+"/orchestrators/wait/one", ""), 409, forebay.CodeConflict)
}

// A key may come as Azure Functions takes it: in a header, and where that is allowed in the query.
// It is in no log, and nowhere else does either count.
func TestFunctionsKeys(t *testing.T) {
	for name, inQuery := range map[string]bool{"header": false, "query": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, withOrchestrations(t), func(o *api.Options) { o.CodeInQuery = inQuery })
			key := f.newKey("acme", forebay.ScopeRead)
			f.key = ""
			at := durable + "/instances"
			f.wantStatus(f.do("GET", at, "", "x-functions-key", key), 200)
			for _, path := range []string{at, at + "/", strings.ToUpper(at)} {
				for _, parameter := range []string{"code", "Code"} {
					r := f.do("GET", path+"?taskHub=hub&"+parameter+"="+url.QueryEscape(key), "")
					if !inQuery {
						wantProblem(t, r, 401, forebay.CodeUnauthorized)
					} else {
						f.wantStatus(r, 200)
					}
					if strings.Contains(fmt.Sprint(r.Header)+string(r.body), key) {
						t.Errorf("the key is in the answer: %v %s", r.Header, r.body)
					}
				}
			}
			wantProblem(t, f.do("POST", at+"/none/terminate", "", "x-functions-key", key), 403, forebay.CodeForbidden)
			wantProblem(t, f.do("GET", at, "", "x-functions-key", "fb_wrong"), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", at+"?code="+key, "", "x-functions-key", "fb_wrong"), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", at+"?code="+key, "", "Authorization", "Bearer fb_wrong"), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", at+"?code="+key+"&CODE="+key, ""), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", at+"?code="+strings.Repeat("x", 300), ""), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", "/v1/jobs", "", "x-functions-key", key), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", "/v1/jobs?code="+key, ""), 401, forebay.CodeUnauthorized)
			wantProblem(t, f.do("GET", durable+"/nothing?code="+key, ""), 404, forebay.CodeNotFound)
			wantProblem(t, f.do("PUT", at+"?code="+key, ""), 405, forebay.CodeMethodNotAllowed)
			if logs := f.logs.String(); strings.Contains(logs, key) || !strings.Contains(logs, "GET "+at) {
				t.Errorf("the log has the key, or nothing:\n%s", logs)
			}
		})
	}
}
