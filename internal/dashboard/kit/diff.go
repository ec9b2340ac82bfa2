package kit

import "strings"

// DiffLine is a line of a difference.
type DiffLine struct {
	Op   string // " " in both, "-" only before, "+" only after
	Text string
}

// maxDiffLines bounds the lines that are compared; what is longer is shown as before and after.
const maxDiffLines = 1200

// Diff compares two texts by lines, by their longest common subsequence.
func Diff(before, after string) []DiffLine {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	lines := make([]DiffLine, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		lines = append(lines, DiffLine{" ", a[0]})
		a, b = a[1:], b[1:]
	}
	var tail []DiffLine
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, DiffLine{" ", a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	lines = append(lines, middle(a, b)...)
	for i := len(tail) - 1; i >= 0; i-- {
		lines = append(lines, tail[i])
	}
	return shorten(lines)
}

func middle(a, b []string) (lines []DiffLine) {
	if len(a) > maxDiffLines || len(b) > maxDiffLines {
		for _, l := range a {
			lines = append(lines, DiffLine{"-", l})
		}
		for _, l := range b {
			lines = append(lines, DiffLine{"+", l})
		}
		return lines
	}
	common := make([][]int16, len(a)+1) // of what is left from i and j on
	for i := range common {
		common[i] = make([]int16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			lines = append(lines, DiffLine{" ", a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			lines = append(lines, DiffLine{"-", a[i]})
			i++
		default:
			lines = append(lines, DiffLine{"+", b[j]})
			j++
		}
	}
	return lines
}

const (
	around       = 3   // lines in both that are shown around a change
	mostShown    = 400 // lines of a difference
	mostLineText = 500 // bytes of one
)

// shorten leaves out what is far from a change.
func shorten(lines []DiffLine) []DiffLine {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l.Op == " " {
			continue
		}
		for j := max(0, i-around); j <= min(len(lines)-1, i+around); j++ {
			near[j] = true
		}
	}
	var out []DiffLine
	skipped := false
	for i, l := range lines {
		if !near[i] {
			skipped = true
			continue
		}
		if len(out) == mostShown {
			return append(out, DiffLine{" ", "… and more"})
		}
		if skipped {
			out = append(out, DiffLine{" ", "…"})
		}
		skipped = false
		if len(l.Text) > mostLineText {
			l.Text = l.Text[:mostLineText] + "…"
		}
		out = append(out, l)
	}
	return out
}
