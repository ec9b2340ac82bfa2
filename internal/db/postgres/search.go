package postgres

import "maps"

// ForSearches is the target of connections for searches.
func (t *Target) ForSearches() *Target {
	searching := t.Copy()
	for _, name := range plannerSettings {
		delete(searching.RuntimeParams, name)
	}
	searching.RuntimeParams["plan_cache_mode"] = "force_custom_plan"
	maps.Copy(searching.RuntimeParams, vectorSettings)
	return searching
}

// plannerSettings keep the plans of the queue's statements stable. Searches need other plans.
var plannerSettings = []string{
	"plan_cache_mode", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "enable_sort", "enable_material",
	"cpu_index_tuple_cost",
}

// vectorSettings are for connections that search: how many candidates an index looks at, and
// that it goes on if too few are the tenant's. It ends after so many (hnsw.max_scan_tuples),
// whatever it has.
var vectorSettings = map[string]string{"hnsw.ef_search": "400", "hnsw.iterative_scan": "relaxed_order"}
