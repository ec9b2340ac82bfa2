package kit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/shell"
)

// functions are what templates call. Those that need the request are methods of [Request].
var functions = template.FuncMap{
	"path":     Path,
	"when":     When,
	"exact":    Exact,
	"since":    between,
	"dur":      Duration,
	"seconds":  func(s float64) string { return Duration(time.Duration(s * float64(time.Second))) },
	"num":      Number,
	"most":     AtLeast,
	"tokens":   Tokens,
	"money":    Money,
	"bytes":    Bytes,
	"json":     JSON,
	"clip":     Clip,
	"clean":    Clean,
	"badge":    Badge,
	"bar":      Bar,
	"timeline": Timeline,
	"list":     func(items ...string) []string { return items },
	"dict":     dict,
	"string":   func(v any) string { return fmt.Sprint(v) },
	"percent":  Percent,
	"plural":   Plural,
}

// dict makes a map of pairs, for a block that takes several values.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d values make no pairs", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// timeOf returns a time.Time or *time.Time. ok is false for none.
func timeOf(v any) (t time.Time, ok bool) {
	switch v := v.(type) {
	case time.Time:
		return v, !v.IsZero()
	case *time.Time:
		if v != nil {
			return *v, !v.IsZero()
		}
	}
	return time.Time{}, false
}

const exactLayout = "2006-01-02 15:04:05.000 UTC"

// When shows a time as the distance from now, with the time itself beside it. No time is a
// dash.
func When(v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return "–"
	}
	t = t.UTC()
	text := ""
	if d := time.Until(t); d > 0 {
		text = "in " + Duration(d)
	} else {
		text = Duration(-d) + " ago"
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // numbers and fixed words
		t.Format(time.RFC3339Nano), t.Format(exactLayout), text))
}

// Exact shows a time as it is.
func Exact(v any) template.HTML {
	t, ok := timeOf(v)
	if !ok {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339Nano), t.Format(exactLayout))) //nolint:gosec // numbers
}

// between is how long something took. Without an end it still runs.
func between(from, to any) string {
	begin, ok := timeOf(from)
	if !ok {
		return "–"
	}
	end, ok := timeOf(to)
	if !ok {
		end = time.Now()
	}
	return Duration(end.Sub(begin))
}

// Duration shows a length of time with two significant parts at most.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// integer returns any whole number.
func integer(v any) int64 {
	switch v := v.(type) {
	case int:
		return int64(v)
	case int64:
		return v
	case *int64:
		if v != nil {
			return *v
		}
	case int32:
		return int64(v)
	case float64:
		return int64(v)
	case uint64:
		return int64(min(v, math.MaxInt64))
	}
	return 0
}

// Number shows a whole number with separators of thousands.
func Number(v any) string {
	n := integer(v)
	digits := strconv.FormatInt(max(n, -n), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if n < 0 {
		return "-" + digits
	}
	return digits
}

// AtLeast shows a count that may have stopped at its limit.
func AtLeast(v any, capped bool) string {
	if capped {
		return Number(v) + "+"
	}
	return Number(v)
}

// Tokens shows a large number shortly.
func Tokens(v any) string {
	n := integer(v)
	switch {
	case n >= 1_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " M"
	case n >= 10_000:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + " k"
	}
	return Number(n)
}

// Money shows an amount of US dollars. A *forebay.Money that is nil is a dash.
func Money(v any) string {
	var m forebay.Money
	switch v := v.(type) {
	case forebay.Money:
		m = v
	case *forebay.Money:
		if v == nil {
			return "–"
		}
		m = *v
	case float64:
		m = forebay.USD(v)
	}
	dollars := m.Dollars()
	switch {
	case dollars == 0:
		return "$0"
	case math.Abs(dollars) < 0.01:
		return "$" + strconv.FormatFloat(dollars, 'f', 6, 64)
	case math.Abs(dollars) < 100:
		return "$" + strconv.FormatFloat(dollars, 'f', 3, 64)
	}
	return "$" + Number(int64(dollars))
}

// Bytes shows a size.
func Bytes(v any) string {
	n := integer(v)
	switch {
	case n >= 1<<30:
		return strconv.FormatFloat(float64(n)/(1<<30), 'f', 1, 64) + " GiB"
	case n >= 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	case n >= 1<<10:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	}
	return Number(n) + " B"
}

// Percent is a share of a whole, from 0 to 100 or more.
func Percent(part, whole any) string {
	w := integer(whole)
	if w == 0 {
		return "–"
	}
	return strconv.FormatFloat(100*float64(integer(part))/float64(w), 'f', 1, 64) + " %"
}

// Plural returns "1 job", "2 jobs".
func Plural(v any, word string) string {
	if n := integer(v); n != 1 {
		return Number(n) + " " + word + "s"
	}
	return "1 " + word
}

// previewBytes is how much of a payload a page shows.
const previewBytes = 4 << 10

// JSON shows the beginning of a JSON value, indented, with its numbers as they are.
func JSON(v any) string {
	var raw []byte
	switch v := v.(type) {
	case json.RawMessage:
		raw = v
	case []byte:
		raw = v
	case string:
		raw = []byte(v)
	default:
		raw, _ = json.Marshal(v)
	}
	if len(raw) > 4*previewBytes {
		return Clip(string(raw))
	}
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return Clip(string(raw))
	}
	return Clip(out.String())
}

// Clip shows the beginning of a text.
func Clip(s string) string { return Clean(clip(s, previewBytes)) }

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// Clean replaces what a text may do to those who read it: control characters, and marks that
// change the direction of what follows.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == utf8.RuneError, unicode.Is(unicode.Bidi_Control, r),
			r >= 0x200b && r <= 0x200d, r == 0xfeff:
			return '\ufffd'
		}
		return r
	}, s)
}

// states are the words that badges show, with a mark, so that colour is not all that tells them
// apart.
var states = map[string]struct{ mark, tone string }{
	"succeeded": {"✓", "good"}, "completed": {"✓", "good"}, "closed": {"✓", "good"}, "ready": {"✓", "good"}, "live": {"✓", "good"}, "enabled": {"✓", "good"},
	"running": {"▶", "busy"}, "in_progress": {"▶", "busy"}, "finalizing": {"▶", "busy"}, "validating": {"▶", "busy"}, "half-open": {"◐", "warn"},
	"queued": {"…", "calm"}, "scheduled": {"◷", "calm"}, "pending": {"…", "calm"}, "waiting": {"…", "calm"},
	"retrying": {"↻", "warn"}, "throttled": {"↻", "warn"}, "paused": {"‖", "warn"}, "suspended": {"‖", "warn"}, "cancelling": {"↻", "warn"}, "lost": {"?", "warn"},
	"failed": {"✕", "bad"}, "open": {"✕", "bad"}, "expired": {"✕", "bad"}, "terminated": {"✕", "bad"}, "revoked": {"✕", "bad"}, "dead": {"✕", "bad"},
	"cancelled": {"–", "calm"}, "canceled": {"–", "calm"}, "incomplete": {"–", "warn"}, "disabled": {"‖", "warn"}, "retried": {"↻", "warn"},
	"send_disabled": {"‖", "warn"}, "receive_disabled": {"‖", "warn"},
	"active": {"…", "calm"}, "locked": {"▶", "busy"}, "held": {"▶", "busy"}, "deferred": {"‖", "warn"}, "failing": {"✕", "bad"}, "error": {"✕", "bad"},
	"selected": {"✓", "good"}, "not selected": {"–", "calm"}, "delivered": {"✓", "good"}, "retry": {"↻", "warn"}, "dead-lettered": {"✕", "bad"},
	"done": {"✓", "good"}, "processing": {"▶", "busy"}, "searchable": {"✓", "good"},
}

// Badge shows a state as a mark and a word.
func Badge(v any) template.HTML {
	word := fmt.Sprint(v)
	s, ok := states[strings.ToLower(word)]
	if !ok {
		s.mark, s.tone = "•", "calm"
	}
	return template.HTML(`<span class="badge ` + s.tone + `"><span aria-hidden="true">` + s.mark + `</span> ` + template.HTMLEscapeString(Clean(word)) + `</span>`) //nolint:gosec // escaped
}

// Shell makes an argument of a command line that a reader may copy: whatever its text, a shell
// takes it as one word and runs nothing.
func Shell(s string) string { return shell.Word(Clean(s)) }

// Args makes the last arguments of a command line that a reader may copy, of which none is taken
// for a flag.
func Args(texts ...string) string {
	for i, s := range texts {
		texts[i] = Clean(s)
	}
	return shell.Args(texts...)
}
