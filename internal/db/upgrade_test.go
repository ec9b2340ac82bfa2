package db

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
	"github.com/forebayhq/forebay/internal/db/schema"
	"github.com/forebayhq/forebay/internal/db/schema/schematest"
	"github.com/forebayhq/forebay/internal/db/sqlite"
)

// A database of the oldest version that still opens becomes like a new one, and keeps its rows.
func TestUpgradedSchemaIsTheNewOne(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fresh, old := database(t), database(t)
			createOldest(t, old, sqlOldMessage)
			if s, err := ReadSchema(t.Context(), old); err != nil || s.Database != schema.Oldest {
				t.Fatalf("the old database is %+v: %v", s, err)
			}
			upgraded := openUntilEnd(t, old)
			if s, err := ReadSchema(t.Context(), old); err != nil || s.Database != schema.Latest() {
				t.Errorf("the upgraded database is %+v: %v", s, err)
			}
			want, got := structure(t, openUntilEnd(t, fresh)), structure(t, upgraded)
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("the upgraded database lacks %s", line)
				}
			}
			for _, line := range got {
				if !slices.Contains(want, line) {
					t.Errorf("a new database has no %s", line)
				}
			}
			if len(want) < 50 {
				t.Errorf("only %d things were compared", len(want))
			}
			mustDo(t, upgraded.Read(t.Context(), func(c driver.Conn) error {
				found, err := c.Prep("SELECT subqueue, flow, visible_at, lock_token FROM messages WHERE seq = 7").One(func(r driver.Row) {
					for i, want := range []int64{5, 16, 1700000000000, 99} {
						if r.Int(i) != want {
							t.Errorf("column %d has %d, was %d", i, r.Int(i), want)
						}
					}
				})
				if !found {
					t.Error("the message is gone")
				}
				return err
			}))
		})
	}
}

const sqlOldMessage = "INSERT INTO messages (seq, lane, rank, visible, token, size) VALUES (7, 5, 16, 1700000000000, 99, 1);"

// createOldest makes a database of the oldest version with these rows.
func createOldest(t *testing.T, where Options, rows string) {
	t.Helper()
	if where.URL == "" {
		schematest.SQLite(t, where.Path, rows)
	} else {
		schematest.PostgreSQL(t, where.URL, rows)
	}
}

var spaces = regexp.MustCompile(`\s+`)

// structure describes each table, index, trigger and sequence of a database in a line.
func structure(t *testing.T, s *DB) (lines []string) {
	t.Helper()
	sql := `SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema`
	if s.Shared() {
		sql = `SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' ||
  CAST(a.attidentity AS text) || CAST(a.attgenerated AS text) || ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || coalesce(array_to_string(c.reloptions, ','), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r'
UNION ALL SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = current_schema()
UNION ALL SELECT 'sequence ' || sequencename FROM pg_sequences WHERE schemaname = current_schema()
UNION ALL SELECT 'trigger ' || pg_get_triggerdef(g.oid) FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
  WHERE c.relnamespace = CAST(current_schema() AS regnamespace) AND NOT g.tgisinternal`
	}
	mustDo(t, s.Read(t.Context(), func(c driver.Conn) error {
		return c.Prep(sql).Each(func(r driver.Row) error {
			text := regexp.MustCompile(`(?m)\s*--.*$`).ReplaceAllString(r.Text(0), "")
			// SQLite writes added columns after the last line of the others.
			lines = append(lines, strings.NewReplacer(`"`, "", " ,", ",", " )", ")").Replace(spaces.ReplaceAllString(text, " ")))
			return nil
		})
	}))
	return lines
}

// Every row that a server of the oldest schema left behind is in the upgraded database as it was.
func TestUpgradeKeepsEveryRow(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			createOldest(t, where, schematest.Live(time.Now()))
			before := rowsOf(t, where)
			mustDo(t, openUntilEnd(t, where).Close())
			after := rowsOf(t, where)
			for old, renamed := range map[string]string{"orchestration_turns": "orchestration_items", "orchestration_pools": "orchestration_queues"} {
				before[renamed] = before[old]
				delete(before, old)
			}
			// What entities have of their own is empty at first: active, and nothing known.
			for i, row := range after["queues"] {
				after["queues"][i] = strings.Replace(strings.TrimSuffix(row, ",0,NULL,NULL,NULL,NULL,NULL"), ",0,,,,,)", ")", 1)
			}
			// Sums of all tenants together, and of days, are made from those of each. What attempts
			// used is apart from their numbers here, since the rows' hours are not those of attempts.
			after["attempt_hours"] = slices.DeleteFunc(after["attempt_hours"], func(row string) bool {
				return strings.HasPrefix(strings.TrimPrefix(row, "("), "0,") || strings.HasSuffix(strings.TrimSuffix(row, ")"), ",0,0")
			})
			delete(after, "usage_days")
			after["counters"] = slices.DeleteFunc(after["counters"], func(row string) bool { return strings.Contains(row, "usage/days") })
			for table, rows := range before {
				if !slices.Equal(rows, after[table]) {
					t.Errorf("the rows of %s were\n%s\nand are\n%s", table, strings.Join(rows, "\n"), strings.Join(after[table], "\n"))
				}
			}
			for table, rows := range after {
				if _, old := before[table]; !old && len(rows) > 0 {
					t.Errorf("the new table %s has %d rows", table, len(rows))
				}
			}
			if len(before) < 40 || len(before) > len(after) { // later schemas add some
				t.Errorf("%d tables became %d", len(before), len(after))
			}
		})
	}
}

// The sums of an upgraded database tell what its attempts used, by the hour and the day, for each
// tenant and all.
func TestUpgradeSumsUse(t *testing.T) {
	t.Parallel()
	for kind, database := range engines {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			where := database(t)
			createOldest(t, where, schematest.Live(time.Now())+`
UPDATE attempts SET cost = 7 * seq, assumed_tokens = 3 WHERE seq <= 16;`)
			d := openUntilEnd(t, where)
			sums := func(sql string) (all [4]int64) {
				mustDo(t, d.Read(t.Context(), func(c driver.Conn) error {
					_, err := c.Prep(sql).One(func(r driver.Row) {
						for i := range all {
							all[i] = r.Int(i)
						}
					})
					return err
				}))
				return all
			}
			const columns = "SELECT CAST(sum(input_tokens) AS BIGINT), CAST(sum(output_tokens) AS BIGINT), CAST(sum(assumed_tokens) AS BIGINT), CAST(sum(cost) AS BIGINT) FROM "
			want := sums(columns + "attempts")
			if want[0] == 0 || want[1] == 0 || want[2] == 0 || want[3] == 0 {
				t.Fatalf("the attempts used %v", want)
			}
			for _, from := range []string{"attempt_hours WHERE tenant > 0", "attempt_hours WHERE tenant = 0", "usage_days WHERE tenant > 0 AND detail = 1", "usage_days WHERE tenant = 0 AND detail = 1", "usage_days WHERE tenant > 0 AND detail = 0", "usage_days WHERE tenant = 0 AND detail = 0"} {
				if got := sums(columns + from); got != want {
					t.Errorf("%s come to %v, the attempts to %v", from, got, want)
				}
			}
			made := sums("SELECT c.value, (SELECT max(day) + 1 FROM usage_days), 0, 0 FROM counters c WHERE c.name = 'usage/days'")
			if made[0] != made[1]<<40-1 {
				t.Errorf("days are made up to %d; the day after the last is %d", made[0], made[1])
			}
		})
	}
}

// otherColumns are the one that schema 30 drops, and those that later ones add.
const otherColumns = "'orchestration_activities.turns', 'jobs.estimate', 'messages.deployment', 'messages.reserved', 'messages.process', " +
	"'attempt_hours.input_tokens', 'attempt_hours.output_tokens', 'attempt_hours.assumed_tokens', 'attempt_hours.cost', 'attempt_hours.part', 'deployment_states.place', 'bodies.amqp', 'shared_bodies.amqp', 'api_keys.entities', 'api_keys.hmac_state', 'jobs.reply'"

// rowsOf returns the rows of each table as text, without otherColumns.
func rowsOf(t *testing.T, where Options) map[string][]string {
	t.Helper()
	var c driver.Conn
	var err error
	columns := `SELECT t.name, group_concat('quote("' || c.name || '")', ' || '','' || ') FROM sqlite_schema t JOIN pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.sql LIKE 'CREATE TABLE%' AND t.name NOT LIKE 'chunk_words%' AND t.name || '.' || c.name NOT IN (` + otherColumns + `) GROUP BY 1`
	if where.URL != "" {
		columns = `SELECT CAST(table_name AS TEXT), 'CAST(ROW(' || string_agg('"' || column_name || '"', ',' ORDER BY ordinal_position) || ') AS TEXT)'
FROM information_schema.columns WHERE table_schema = current_schema() AND table_name <> 'schema_version'
AND table_name || '.' || column_name NOT IN (` + otherColumns + `) GROUP BY 1`
		var pg *postgres.Conn
		pg, err = postgres.ConnectURL(t.Context(), where.URL)
		c = driver.Conn{Driver: pg}
	} else {
		c, err = sqlite.OpenReader(where.Path, nil)
	}
	mustDo(t, err)
	defer c.Close()
	queries := map[string]string{}
	mustDo(t, c.Prep(columns).Each(func(r driver.Row) error {
		queries[r.Text(0)] = "SELECT " + r.Text(1) + " FROM " + r.Text(0)
		return nil
	}))
	all := map[string][]string{}
	for table, query := range queries {
		all[table] = []string{}
		mustDo(t, c.Prep(query).Each(func(r driver.Row) error {
			all[table] = append(all[table], r.Text(0))
			return nil
		}))
		slices.Sort(all[table])
	}
	return all
}
