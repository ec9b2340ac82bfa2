package modelsim

import (
	"maps"
	"slices"
	"time"
)

// Stats is what a deployment has seen since the start or the last reset.
type Stats struct {
	Calls     int64               `json:"calls"`
	Answered  int64               `json:"answered"`  // complete, with a 200
	Throttled map[Dimension]int64 `json:"throttled"` // 429s by dimension, "script" for those of the script
	Errors    map[int]int64       `json:"errors"`    // of the script, by status, without 429s
	Filtered  int64               `json:"content_filter"`
	Hung      int64               `json:"hung"`
	Cut       int64               `json:"cut"`
	Malformed int64               `json:"malformed"`
	Outage    int64               `json:"outage"`
	Denied    int64               `json:"denied"` // of the script, whatever their status
	Gone      int64               `json:"client_gone"`
	Invalid   int64               `json:"invalid"` // refused as invalid, after admission

	// TokensAdmitted were charged at admission. TokensWasted are those of calls that got no
	// complete answer.
	TokensAdmitted int64 `json:"tokens_admitted"`
	TokensWasted   int64 `json:"tokens_wasted"`
	ForeignTokens  int64 `json:"foreign_tokens"` // of the other client, admitted until the latest call
	PromptTokens   int64 `json:"prompt_tokens"`  // of complete answers, as reported to the client
	OutputTokens   int64 `json:"output_tokens"`

	InFlight     int `json:"in_flight"`
	PeakInFlight int `json:"peak_in_flight"`

	FirstCallAt *time.Time `json:"first_call_at"`
	LastCallAt  *time.Time `json:"last_call_at"`  // when it came
	LastEndedAt *time.Time `json:"last_ended_at"` // when the last call ended

	// Windows are the latest 1,440 minutes with a call, cut where the quota's windows begin.
	// HighestWindow and HighestRolling are the most tokens admitted in one of all these windows,
	// and in any 60 seconds.
	Windows        []Window `json:"windows"`
	HighestWindow  int64    `json:"highest_window"`
	HighestRolling int64    `json:"highest_rolling_minute"`
}

// Window is what was admitted in one minute.
type Window struct {
	StartSeconds float64 `json:"start_seconds"` // after the start or the last reset
	Calls        int64   `json:"calls"`
	Tokens       int64   `json:"tokens"`
}

// throttledByScript is the key of 429s of the script in Stats.Throttled.
const throttledByScript Dimension = "script"

const maxWindows = 1440

// tally collects a deployment's Stats.
type tally struct {
	Stats
	start  time.Time
	phase  time.Duration // of the windows
	latest int64         // window index
	ring   [60]int64     // tokens by second
	second int64         // of the ring's latest entry
	sum    int64         // of the ring
}

func newTally(start time.Time, phase time.Duration) *tally {
	return &tally{start: start, phase: phase % time.Minute, latest: -2,
		Stats: Stats{Throttled: map[Dimension]int64{}, Errors: map[int]int64{}}}
}

func (t *tally) began(now time.Time) {
	t.Calls++
	t.InFlight++
	t.PeakInFlight = max(t.PeakInFlight, t.InFlight)
	if t.FirstCallAt == nil {
		t.FirstCallAt = &now
	}
	t.LastCallAt = &now
}

func (t *tally) admitted(now time.Time, tokens int64) {
	t.TokensAdmitted += tokens
	since := now.Sub(t.start)
	index := int64((since-t.phase+time.Minute)/time.Minute) - 1 // -1: before the first whole one
	if index > t.latest {
		t.latest = index
		if len(t.Windows) == maxWindows {
			t.Windows = slices.Delete(t.Windows, 0, 1)
		}
		t.Windows = append(t.Windows, Window{StartSeconds: max(time.Duration(index)*time.Minute+t.phase, 0).Seconds()})
	}
	w := &t.Windows[len(t.Windows)-1]
	w.Calls++
	w.Tokens += tokens
	t.HighestWindow = max(t.HighestWindow, w.Tokens)

	second := int64(since / time.Second)
	if second-t.second >= int64(len(t.ring)) {
		t.ring, t.sum, t.second = [60]int64{}, 0, second
	}
	for t.second < second {
		t.second++
		t.sum -= t.ring[t.second%60]
		t.ring[t.second%60] = 0
	}
	t.ring[second%60] += tokens
	t.sum += tokens
	t.HighestRolling = max(t.HighestRolling, t.sum)
}

// ended counts the end of a call that began.
func (t *tally) ended(now time.Time, a Admission, outcome Outcome, used Used) {
	t.InFlight--
	t.LastEndedAt = &now
	switch outcome {
	case Answered:
		t.Answered++
		t.PromptTokens += int64(used.Prompt)
		t.OutputTokens += int64(used.Output)
		return
	case Throttled:
		t.Throttled[a.Verdict.Refused]++
		return // nothing was charged
	case Failed:
		t.Errors[a.Status]++
	case Filtered:
		t.Filtered++
	case Hung:
		t.Hung++
	case Cut:
		t.Cut++
	case Malformed:
		t.Malformed++
	case Outage:
		t.Outage++
	case Denied:
		t.Denied++
	case Gone:
		t.Gone++
	case Invalid:
		t.Invalid++
	}
	t.TokensWasted += int64(a.charged())
}

// copied returns stats that share nothing with the tally.
func (t *tally) copied() Stats {
	s := t.Stats
	s.Throttled, s.Errors, s.Windows = maps.Clone(s.Throttled), maps.Clone(s.Errors), slices.Clone(s.Windows)
	return s
}
