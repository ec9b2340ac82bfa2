package atom

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// ticks is a duration in units of 100 ns, as .NET's TimeSpan counts it.
type ticks int64

const (
	ticksPerSecond = 10_000_000
	// forever is TimeSpan.MaxValue, which stands for no limit. Its text is
	// P10675199DT2H48M5.4775807S.
	forever ticks = math.MaxInt64
)

var errDuration = errors.New("is not an ISO 8601 duration")

// maxDurationBytes bounds the text of a duration. Clients write 26 bytes at most.
const maxDurationBytes = 64

// parseDuration reads a duration of ISO 8601 (section 4.4.3.2). A year has 365 days and a month 30
// days, as in XML documents of .NET. The smallest component may have a fraction. What is longer
// than forever is forever.
func parseDuration(text string) (ticks, error) {
	rest, ok := strings.CutPrefix(text, "P")
	if !ok || len(text) > maxDurationBytes {
		return 0, errDuration
	}
	date, clock, timed := strings.Cut(rest, "T")
	if date == "" && clock == "" || timed && clock == "" {
		return 0, errDuration
	}
	const day = 24 * 60 * 60
	d, fraction, err := components(date, "YMWD", []float64{365 * day, 30 * day, 7 * day, day})
	if err != nil || fraction && timed {
		return 0, errDuration
	}
	t, _, err := components(clock, "HMS", []float64{60 * 60, 60, 1})
	if err != nil {
		return 0, err
	}
	if d > forever-t {
		return forever, nil
	}
	return d + t, nil
}

// components reads numbers, each with one of the letters behind it, in the order of the letters.
// fraction reports whether the last one has a fraction.
func components(text, letters string, seconds []float64) (sum ticks, fraction bool, err error) {
	for text != "" {
		if fraction {
			return 0, false, errDuration
		}
		end := strings.IndexAny(text, letters)
		if end < 1 {
			return 0, false, errDuration
		}
		at := strings.IndexByte(letters, text[end])
		n, part, err := number(text[:end])
		if err != nil {
			return 0, false, err
		}
		fraction = part != ""
		unit := ticks(seconds[at]) * ticksPerSecond
		more := forever
		if n <= (forever-unit)/unit {
			more = n*unit + share(part, unit)
		}
		if sum += more; sum < 0 || more == forever {
			sum = forever
		}
		letters, seconds, text = letters[at+1:], seconds[at+1:], text[end+1:]
	}
	return sum, fraction, nil
}

// number reads digits, and the digits of a fraction behind a dot or a comma.
func number(text string) (whole ticks, fraction string, err error) {
	text = strings.Replace(text, ",", ".", 1)
	text, fraction, dotted := strings.Cut(text, ".")
	if !digits(text) || dotted && !digits(fraction) {
		return 0, "", errDuration
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // it is out of range
		n = math.MaxInt64
	}
	return ticks(n), fraction, nil
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// share is that fraction of a unit.
func share(fraction string, unit ticks) (sum ticks) {
	for i := range len(fraction) {
		if unit /= 10; unit == 0 {
			break
		}
		sum += ticks(fraction[i]-'0') * unit
	}
	return sum
}

// String writes the duration as .NET does: in days, hours, minutes and seconds.
func (t ticks) String() string {
	if t == 0 {
		return "PT0S"
	}
	seconds, part := t/ticksPerSecond, t%ticksPerSecond
	var b strings.Builder
	b.WriteByte('P')
	write := func(n ticks, letter byte) {
		if n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteByte(letter)
		}
	}
	write(seconds/86400, 'D')
	if seconds %= 86400; seconds == 0 && part == 0 {
		return b.String()
	}
	b.WriteByte('T')
	write(seconds/3600, 'H')
	write(seconds/60%60, 'M')
	if part == 0 {
		write(seconds%60, 'S')
		return b.String()
	}
	b.WriteString(strconv.FormatInt(int64(seconds%60), 10))
	b.WriteString(strings.TrimRight("."+strconv.FormatInt(int64(part+ticksPerSecond), 10)[1:], "0"))
	b.WriteByte('S')
	return b.String()
}

func (t ticks) seconds() float64 { return float64(t) / ticksPerSecond }

func ofSeconds(s float64) ticks {
	if s >= float64(forever)/ticksPerSecond {
		return forever
	}
	return ticks(math.Round(s * ticksPerSecond))
}

// timeText writes a time as Service Bus does. Also the zero time has its zone: the SDK for .NET
// takes a time without one for local, and cannot read it where that is before the year 1.
func timeText(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.9999999Z")
}

// Seconds reads a duration of ISO 8601 as the protocol has it. 0 stands for none. It also stands
// for a duration that is so long that Forebay sets no limit.
func Seconds(text string) (float64, error) {
	var r reader
	s := r.duration("duration", &text, longestTime)
	return s, r.err
}

// TargetName returns the name of the entity that the URI or the name of a forwarding target is
// about, "" for none.
func TargetName(written string) string { return targetName(strings.TrimSpace(written)) }
