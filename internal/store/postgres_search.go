package store

import (
	"maps"

	"github.com/jackc/pgx/v5/pgconn"
)

// plannerSettings keep the plans of the queue's statements stable. Searches need other plans.
var plannerSettings = []string{
	"plan_cache_mode", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "enable_sort", "enable_material",
	"cpu_index_tuple_cost",
}

// searchConfig is the configuration of connections for searches.
func searchConfig(config *pgconn.Config) *pgconn.Config {
	searching := config.Copy()
	searching.RuntimeParams = maps.Clone(config.RuntimeParams)
	for _, name := range plannerSettings {
		delete(searching.RuntimeParams, name)
	}
	searching.RuntimeParams["plan_cache_mode"] = "force_custom_plan"
	maps.Copy(searching.RuntimeParams, vectorSettings)
	return searching
}

// sqlWordsPostgres ranks the chunks that hold all words, or some. Ranking reads each of them: of words that
// are everywhere not all are.
func sqlWordsPostgres(some bool) string {
	query := "plainto_tsquery('pg_catalog.simple', ?1)"
	if some {
		query = "CAST(replace(CAST(" + query + " AS text), '&', '|') AS tsquery)"
	}
	return `SELECT w.no, CAST(w.score * 1000000 AS BIGINT) FROM (
  SELECT m.no, m.revision, ts_rank(m.words, ` + query + `, 1) AS score FROM (
    SELECT no, revision, words FROM chunks WHERE words @@ (CAST(?2 AS tsquery) && ` + query + `) LIMIT 20000) m) w
JOIN document_revisions r ON r.no = w.revision WHERE r.live IS NOT NULL AND r.tenant = ?3 ORDER BY w.score DESC, w.no LIMIT ?4 + 0`
}
