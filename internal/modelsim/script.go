package modelsim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/forebayhq/forebay"
)

// Script is a timeline of faults, relative to the start of the deployment or its last reset.
// Several faults may hold at once: rates add up, factors multiply.
type Script []Fault

// Fault is what goes wrong in one span of time. Rates are shares of the calls that reach it.
type Fault struct {
	From Duration `yaml:"from" json:"from"`
	To   Duration `yaml:"to" json:"to"` // 0: for ever

	// Errors are rates by status, 400 to 599. A 429 comes before admission and charges nothing.
	// Other errors come after it, so the call has used its quota.
	Errors Rates `yaml:"errors" json:"errors,omitempty"`
	// RetryAfter is sent with those errors.
	RetryAfter Duration `yaml:"retry_after" json:"retry_after,omitempty"`
	// ContentFilter, Hang, Cut and Malformed are shares of calls. The filter refuses them, they are
	// never answered, they break off in the middle, or their answer is invalid.
	ContentFilter float64 `yaml:"content_filter" json:"content_filter,omitempty"`
	Hang          float64 `yaml:"hang" json:"hang,omitempty"`
	Cut           float64 `yaml:"cut" json:"cut,omitempty"`
	Malformed     float64 `yaml:"malformed" json:"malformed,omitempty"`
	// Outage closes every connection without an answer.
	Outage bool `yaml:"outage" json:"outage,omitempty"`
	// Denied turns every call away before admission, and charges nothing; "": none. Of faults that
	// overlap the last one counts.
	Denied Denial `yaml:"denied" json:"denied,omitempty"`
	// Latency multiplies every delay; 0: 1.
	Latency float64 `yaml:"latency" json:"latency,omitempty"`
	// Quota is the part of the quota that is left; 0: all. Headers report it only if QuotaShown.
	Quota      float64 `yaml:"quota" json:"quota,omitempty"`
	QuotaShown bool    `yaml:"quota_shown" json:"quota_shown,omitempty"`
}

// Denial is why a deployment turns every call away.
type Denial string

// The denials. Each is answered in the way of the API that was called; see httpCall.denied.
const (
	Unauthorized      Denial = "unauthorized"       // the key was revoked
	InsufficientQuota Denial = "insufficient_quota" // no credit is left, and no waiting helps
	NotFound          Denial = "not_found"          // the model, or Azure's deployment, does not exist
)

// Denials lists them all.
var Denials = []Denial{Unauthorized, InsufficientQuota, NotFound}

const (
	maxFaults = 1000
	maxFactor = 1000
)

// scripts are those with a name. Admission control is measured with "reference": brown-outs,
// outages, slowness, and a quota that is cut without notice, within 100 minutes.
var scripts = map[string]Script{
	"none": {},
	"reference": {
		{From: minutes(10), To: minutes(13), Errors: map[int]float64{503: 0.7}},
		{From: minutes(25), To: minutes(26), Outage: true},
		{From: minutes(35), To: minutes(45), Latency: 4},
		{From: minutes(55), To: minutes(70), Quota: 0.6},
		{From: minutes(80), To: minutes(82), Outage: true},
		{From: minutes(95), To: minutes(97), Errors: map[int]float64{503: 0.3}},
	},
}

func minutes(n int) Duration { return Duration(time.Duration(n) * time.Minute) }

// ScriptNames lists the scripts that have a name.
func ScriptNames() []string { return slices.Sorted(maps.Keys(scripts)) }

// NamedScript returns the script of that name.
func NamedScript(name string) (Script, error) {
	s, ok := scripts[name]
	if !ok {
		return nil, forebay.Invalid("faults", "there is no script %.64q; there are %v", name, ScriptNames())
	}
	return s, nil
}

// Scaled returns the script with its times multiplied by f.
func (s Script) Scaled(f float64) Script {
	out := slices.Clone(s)
	for i := range out {
		out[i].From = Duration(float64(out[i].From) * f)
		out[i].To = Duration(float64(out[i].To) * f)
	}
	return out
}

// Validate returns a *forebay.Error about the first fault that is invalid, or nil.
func (s Script) Validate() error {
	if len(s) > maxFaults {
		return forebay.Invalid("faults", "has %d parts; the limit is %d", len(s), maxFaults)
	}
	for i, t := range s {
		if err := t.validate(fmt.Sprintf("faults[%d].", i)); err != nil {
			return err
		}
	}
	return nil
}

func (t Fault) validate(at string) error {
	switch {
	case t.From < 0:
		return forebay.Invalid(at+"from", "must not be negative")
	case t.To != 0 && t.To <= t.From:
		return forebay.Invalid(at+"to", "must be later than from")
	case t.RetryAfter < 0 || t.RetryAfter > Duration(7*24*time.Hour):
		return forebay.Invalid(at+"retry_after", "must be 0 to 168h")
	case !(t.Latency >= 0 && t.Latency <= maxFactor):
		return forebay.Invalid(at+"latency", "must be a factor of 0 to %d", maxFactor)
	case !(t.Quota >= 0 && t.Quota <= maxFactor):
		return forebay.Invalid(at+"quota", "must be a factor of 0 to %d", maxFactor)
	case t.Denied != "" && !slices.Contains(Denials, t.Denied):
		return forebay.Invalid(at+"denied", "must be one of %v", Denials)
	}
	total := 0.0
	for status, rate := range t.Errors {
		if status < 400 || status > 599 {
			return forebay.Invalid(at+"errors", "%d is no error status: they are 400 to 599", status)
		}
		if !isRate(rate) {
			return forebay.Invalid(at+"errors", "the rate of %d must be 0 to 1", status)
		}
		total += rate
	}
	for _, r := range []struct {
		name string
		rate float64
	}{{"content_filter", t.ContentFilter}, {"hang", t.Hang}, {"cut", t.Cut}, {"malformed", t.Malformed}} {
		if !isRate(r.rate) {
			return forebay.Invalid(at+r.name, "must be a rate of 0 to 1")
		}
		total += r.rate
	}
	if total > 1+1e-9 {
		return forebay.Invalid(at+"errors", "the rates add up to %.3g; together they may be at most 1", total)
	}
	return nil
}

func isRate(f float64) bool { return f >= 0 && f <= 1 } // NaN is none

// Conditions are what a script says for one moment.
type Conditions struct {
	Outage     bool
	Denied     Denial
	Latency    float64
	Quota      float64
	QuotaShown bool

	rates      []rate
	retryAfter time.Duration
}

// Outcome is how a call ends.
type Outcome string

// The outcomes.
const (
	Answered  Outcome = "answered"
	Throttled Outcome = "throttled" // 429, by the quota or by the script
	Failed    Outcome = "failed"    // an error of the script
	Filtered  Outcome = "content_filter"
	Hung      Outcome = "hung"
	Cut       Outcome = "cut"
	Malformed Outcome = "malformed"
	Outage    Outcome = "outage"
	Denied    Outcome = "denied"      // by a denial of the script
	Invalid   Outcome = "invalid"     // the request was refused: 400, 401, 404, 413
	Gone      Outcome = "client_gone" // before the answer was complete
)

type rate struct {
	share   float64
	outcome Outcome
	status  int
}

// At returns what holds at a time after the start.
func (s Script) At(elapsed time.Duration) Conditions {
	c := Conditions{Latency: 1, Quota: 1, QuotaShown: true}
	for _, t := range s {
		if elapsed < time.Duration(t.From) || t.To != 0 && elapsed >= time.Duration(t.To) {
			continue
		}
		c.Outage = c.Outage || t.Outage
		if t.Denied != "" {
			c.Denied = t.Denied
		}
		if t.Latency > 0 {
			c.Latency *= t.Latency
		}
		if t.Quota > 0 {
			c.Quota *= t.Quota
			c.QuotaShown = c.QuotaShown && t.QuotaShown
		}
		if t.RetryAfter > 0 {
			c.retryAfter = time.Duration(t.RetryAfter)
		}
		for _, status := range slices.Sorted(maps.Keys(t.Errors)) {
			c.rates = append(c.rates, rate{t.Errors[status], Failed, status})
		}
		c.rates = append(c.rates, rate{t.ContentFilter, Filtered, http.StatusBadRequest}, rate{t.Hang, Hung, 0}, rate{t.Cut, Cut, 0}, rate{t.Malformed, Malformed, 0})
	}
	return c
}

// Next returns when, after elapsed, something changes; ok is false when nothing does.
func (s Script) Next(elapsed time.Duration) (at time.Duration, ok bool) {
	for _, t := range s {
		for _, edge := range []Duration{t.From, t.To} {
			if e := time.Duration(edge); e > elapsed && (!ok || e < at) {
				at, ok = e, true
			}
		}
	}
	return at, ok
}

// Draw returns the outcome of one call for a random u, 0 to below 1, and its status if it
// Failed. A 429 comes before admission, every other outcome after it.
func (c Conditions) Draw(u float64) (Outcome, int) {
	for _, r := range c.rates {
		if u < r.share {
			return r.outcome, r.status
		}
		u -= r.share
	}
	return Answered, 0
}
