package postgres

import (
	"fmt"
	"regexp"
	"strings"
)

// lookup is a join to a table that is looked up for each row.
var lookup = regexp.MustCompile(`\b(JOIN \w+ (\w+) ON (\w+)\.\w+ =) (\w+\.\w+)`)

// lookups has the planner look up what is joined, see [postgresSettings]. So what a statement
// walks stands first in it.
func lookups(sql string) string {
	return lookup.ReplaceAllStringFunc(sql, func(join string) string {
		parts := lookup.FindStringSubmatch(join)
		if parts[2] != parts[3] {
			return join
		}
		return parts[1] + " ANY (ARRAY[" + parts[4] + "])"
	})
}

// messageOrder is the order of messages that are ready, and of those of a queue. In SQLite
// every index ends with the row's number by itself.
var messageOrder = regexp.MustCompile(`\b(visible_at, )((?:m\.)?seq)\b|\b(ORDER BY )(b\.seq)\b|\b([bm]\.\w+ = \$\d+ AND )([bm]\.seq)( >=? )`)

// numberInOrder is the order of the rows that a tenant owns. A statement that walks them names
// their table "owned". Its indexes by tenant end in (no + 0). So the planner does not take them
// for as good as the key while the table is empty.
var numberInOrder = regexp.MustCompile(`\b(owned\.(?:no|seq))( [<>]=?)|\b(ORDER BY )(owned\.(?:no|seq))\b`)

// translate turns ? and ?N into $N, leaves out SQLite's hints to its planner and puts in what
// PostgreSQL's needs. It returns how many parameters there are.
func translate(sql string) (translated string, parameters int) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(sql); i++ {
		switch rest := sql[i:]; {
		case sql[i] == '\'':
			quoted = !quoted
			b.WriteByte('\'')
		case quoted:
			b.WriteByte(sql[i])
		case strings.HasPrefix(rest, "CROSS JOIN "):
			i += len("CROSS ") - 1
		case strings.HasPrefix(rest, "INDEXED BY "):
			i += len("INDEXED BY ")
			for i < len(sql) && sql[i] != ' ' {
				i++
			}
		case sql[i] == '?':
			n := 0
			for i+1 < len(sql) && sql[i+1] >= '0' && sql[i+1] <= '9' {
				i++
				n = 10*n + int(sql[i]-'0')
			}
			if n == 0 {
				n = parameters + 1
			}
			parameters = max(parameters, n)
			fmt.Fprintf(&b, "$%d", n)
		default:
			b.WriteByte(sql[i])
		}
	}
	ordered := messageOrder.ReplaceAllString(lookups(b.String()), "$1$3$5($2$4$6 + 0)$7")
	return numberInOrder.ReplaceAllString(ordered, "$3($1$4 + 0)$2"), parameters
}
