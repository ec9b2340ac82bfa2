package extract

import "strings"

// markdownHeadings finds the headings of a Markdown text (CommonMark 0.31, sections 4.2, 4.3 and
// 4.5). It leaves the text as it is and ignores fenced code.
func markdownHeadings(body string) (list []Heading) {
	fence, before, beforeAt, offset := "", "", 0, 0 // before is the one line of a paragraph so far
	further := false                                // the paragraph has more lines
	for line := range strings.Lines(body) {
		at := offset
		offset += len(line)
		text := strings.TrimRight(line, " \t\n")
		indent := len(text) - len(strings.TrimLeft(text, " "))
		text = text[indent:]
		switch {
		case fence != "":
			if indent <= 3 && strings.HasPrefix(text, fence) && strings.Trim(text, fence[:1]) == "" {
				fence = ""
			}
			before, further = "", false
		case indent > 3 || strings.HasPrefix(text, "\t"):
			before, further = "", before != "" || further // a paragraph may go on so
		case strings.HasPrefix(text, "```") && !strings.Contains(strings.TrimLeft(text, "`"), "`"), strings.HasPrefix(text, "~~~"):
			fence = text[:len(text)-len(strings.TrimLeft(text, text[:1]))]
			before, further = "", false
		case atxLevel(text) > 0:
			level := atxLevel(text)
			title := strings.TrimSpace(text[level:])
			if closed := strings.TrimRight(title, "#"); closed == "" || strings.HasSuffix(closed, " ") {
				title = closed
			}
			list = addHeading(list, at, level, title)
			before, further = "", false
		case before != "" && text != "" && (strings.Trim(text, "=") == "" || strings.Trim(text, "-") == ""):
			level := 1
			if text[0] == '-' {
				level = 2
			}
			list = addHeading(list, beforeAt, level, before)
			before, further = "", false
		case text == "":
			before, further = "", false
		case before != "" || further || strings.ContainsAny(text[:1], ">-*+|"): // or of a quotation, a list, a table
			before, further = "", true // a heading of several lines is taken for a paragraph
		default:
			before, beforeAt = text, at
		}
	}
	return list
}

// atxLevel is the level of a heading that begins with number signs, 0 if the line is no heading.
func atxLevel(text string) int {
	level := len(text) - len(strings.TrimLeft(text, "#"))
	if level < 1 || level > 6 || len(text) > level && text[level] != ' ' && text[level] != '\t' {
		return 0
	}
	return level
}
