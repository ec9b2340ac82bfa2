package documents

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/forebayhq/forebay/internal/db/driver"
)

// postgresWords asks PostgreSQL's full-text search.
type postgresWords struct {
	driver.Conn
	tenant int64
	others bool // have documents too
}

// sqlWordsPostgres splits a query into words. For each word it returns in how many chunks the
// word is, if it is one of the frequent ones in the planner's statistics. It also returns how
// many chunks these cover; NULL: there are no statistics yet.
const sqlWordsPostgres = `
WITH s AS MATERIALIZED (
  SELECT c.reltuples AS chunks, CAST(CAST(p.most_common_elems AS TEXT) AS TEXT[]) AS words, p.most_common_elem_freqs AS shares
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_stats p ON p.schemaname = n.nspname AND p.tablename = c.relname AND p.attname = 'words' WHERE c.oid = to_regclass('chunks'))
SELECT w.word, f.chunks, (SELECT CAST(s.chunks AS BIGINT) FROM s)
FROM unnest(tsvector_to_array(to_tsvector('pg_catalog.simple', ?1)) || CAST(?2 AS TEXT)) AS w (word)
LEFT JOIN (SELECT e.word, CAST(e.share * s.chunks AS BIGINT) AS chunks FROM s, unnest(s.words, s.shares) AS e (word, share)) f ON f.word = w.word`

func (x postgresWords) words(query string, most int) (words []queryWord, err error) {
	known, own := false, 0
	err = x.Prep(sqlWordsPostgres).Text(query).Text(x.mark()).Each(func(r driver.Row) error {
		known = !r.IsNull(2)
		if r.Text(0) == x.mark() {
			own = int(r.Int(1))
		} else {
			words = append(words, queryWord{text: r.Text(0), chunks: int(r.Int(1))})
		}
		return nil
	})
	for i, w := range words {
		if known {
			words[i].chunks = max(1, min(w.chunks, own))
		} else {
			words[i].chunks = max(1, most/3) // the three longest words count as the rarest
		}
	}
	slices.SortStableFunc(words, func(a, b queryWord) int {
		return cmp.Or(cmp.Compare(a.chunks, b.chunks), cmp.Compare(len(b.text), len(a.text)))
	})
	words = words[:min(len(words), maxQueryWords)]
	return words, err
}

// mark is the word that stands for the tenant in its chunks.
func (x postgresWords) mark() string { return "#" + strconv.FormatInt(x.tenant, 10) }

var quoteLexeme = strings.NewReplacer("'", "''", `\`, `\\`)

// query returns a tsquery of words joined by an operator.
func (x postgresWords) query(words []queryWord, operator string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + quoteLexeme.Replace(w.text) + "'"
	}
	return strings.Join(quoted, operator)
}

// of returns a tsquery that limits another one to the tenant's chunks.
func (x postgresWords) of(query string) string {
	if !x.others {
		return query
	}
	return "'" + x.mark() + "' & (" + query + ")"
}

// sqlLiveRowPostgres is sqlLiveRow. It is no join: the planner could begin a join with all live
// chunks.
const sqlLiveRowPostgres = " AND ?3 = (SELECT r.tenant FROM document_revisions r WHERE r.no = chunks.revision AND r.live + 0 IS NOT NULL)"

func (x postgresWords) whole(words []queryWord, limit int) (chunks []int64, err error) {
	err = x.Prep("SELECT no FROM chunks WHERE words @@ CAST(?1 AS tsquery)" + sqlLiveRowPostgres + " LIMIT ?2 + 0").Text(x.of(x.query(words, " & "))).Int(int64(limit)).Int(x.tenant).
		Each(func(r driver.Row) error { chunks = append(chunks, r.Int(0)); return nil })
	return chunks, err
}

func (x postgresWords) ranked(words []queryWord, all bool, limit int) (matches []Match, err error) {
	operator := " | "
	if all {
		operator = " & "
	}
	query := x.query(words, operator)
	err = x.Prep("SELECT no, CAST(ts_rank(words, CAST(?4 AS tsquery), 1) * 1000000 AS BIGINT) FROM chunks WHERE words @@ CAST(?1 AS tsquery)" + sqlLiveRowPostgres + " LIMIT ?2 + 0").
		Text(x.of(query)).Int(int64(limit)).Int(x.tenant).Text(query).Each(func(r driver.Row) error { matches = append(matches, matchOf(r)); return nil })
	return matches, err
}
