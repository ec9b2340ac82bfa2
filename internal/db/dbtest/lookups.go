package dbtest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// uniqueKey is a unique index: at most one row has these values.
type uniqueKey struct {
	table, index string
	columns      []string
}

// uniqueKeys reads the unique indexes of a PostgreSQL database that hold for all rows of a table.
func uniqueKeys(c driver.Conn) (keys []uniqueKey, err error) {
	err = c.Prep(`SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, string_agg(a.attname::text, ',')
FROM pg_index AS i JOIN pg_class AS r ON r.oid = i.indrelid JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND r.relnamespace = current_schema()::regnamespace
GROUP BY 1, 2`).Each(func(r driver.Row) error {
		keys = append(keys, uniqueKey{table: r.Text(0), index: r.Text(1), columns: strings.Split(r.Text(2), ",")})
		return nil
	})
	return keys, err
}

var (
	indexScan  = regexp.MustCompile(`Index (?:Only )?Scan (?:Backward )?using (\w+) on (\w+)`)
	fixedByOne = regexp.MustCompile(`^\(*(?:\w+\.)?(\w+) = ([^=<>]*)\)*$`)
)

// unusedKey names a unique index that would find the one row that a step of a plan wants. The
// step reads another index instead, and drops what it does not want.
func unusedKey(plan []string, keys []uniqueKey) (step, index string) {
	for i, step := range plan {
		scan := indexScan.FindStringSubmatch(step)
		if scan == nil {
			continue
		}
		var looked, fixed []string // columns that the index is asked for, and all that have one value
		for _, condition := range plan[i+1 : min(i+3, len(plan))] {
			switch kind, what, _ := strings.Cut(strings.TrimSpace(condition), ": "); kind {
			case "Index Cond":
				looked = fixedColumns(what)
				fixed = append(fixed, looked...)
			case "Filter":
				fixed = append(fixed, fixedColumns(what)...)
			}
		}
		all := func(of []string) func(uniqueKey) bool {
			return func(k uniqueKey) bool {
				return k.table == scan[2] && !slices.ContainsFunc(k.columns, func(c string) bool { return !slices.Contains(of, c) })
			}
		}
		if used := slices.ContainsFunc(keys, all(looked)); used {
			continue
		}
		if unused := slices.IndexFunc(keys, all(fixed)); unused >= 0 {
			return strings.TrimSpace(step), keys[unused].index
		}
	}
	return "", ""
}

// fixedColumns are the columns that a condition compares with one value.
func fixedColumns(condition string) (columns []string) {
	for _, part := range conjuncts(condition) {
		several := strings.Contains(part, " OR ") || strings.Contains(part, " = ANY (ARRAY[") && strings.Contains(part, ", ")
		if found := fixedByOne.FindStringSubmatch(part); found != nil && !several {
			columns = append(columns, found[1])
		}
	}
	return columns
}

// conjuncts splits a condition at the ANDs that are in no inner parentheses.
func conjuncts(condition string) (parts []string) {
	condition = strings.TrimSpace(condition)
	if strings.HasPrefix(condition, "((") && strings.HasSuffix(condition, "))") {
		condition = condition[1 : len(condition)-1]
	}
	depth, from := 0, 0
	for i := range len(condition) {
		switch condition[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 && strings.HasPrefix(condition[i:], " AND ") {
			parts = append(parts, condition[from:i])
			from = i + len(" AND ")
		}
	}
	return append(parts, condition[from:])
}
