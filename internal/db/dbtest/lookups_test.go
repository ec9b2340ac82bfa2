package dbtest

import "testing"

func TestUnusedKey(t *testing.T) {
	keys := []uniqueKey{{"jobs", "jobs_pkey", []string{"seq"}}, {"orchestrations", "orchestrations_tenant_id_key", []string{"tenant", "id"}}}
	for name, c := range map[string]struct {
		plan []string
		key  string
	}{
		"the key is used": {[]string{"->  Index Scan using orchestrations_tenant_id_key on orchestrations o",
			"      Index Cond: ((tenant = ANY (ARRAY[x.p1])) AND (id = x.p2))"}, ""},
		"half of the key is filtered": {[]string{"->  Index Scan using orchestrations_tenant on orchestrations o",
			"      Index Cond: (tenant = ANY (ARRAY[x.p1]))", "      Filter: ((status IS NULL) AND (o.id = x.p2))"}, "orchestrations_tenant_id_key"},
		"the key is filtered, and nothing is looked up": {[]string{"Index Scan using jobs_tenant on jobs", "  Filter: (seq = $1)"}, "jobs_pkey"},
		"half of the key is not known": {[]string{"Index Scan using orchestrations_tenant on orchestrations", "  Index Cond: (tenant = $1)",
			"  Filter: (($2 = ''::text) OR (id = $2))"}, ""},
		"a range is no value": {[]string{"Index Only Scan Backward using jobs_tenant on jobs j", "  Index Cond: ((tenant = $1) AND (seq < $2) AND (seq >= $3))"}, ""},
		"another table's":     {[]string{"Index Scan using outcomes_pkey on outcomes", "  Index Cond: (seq > $1)", "  Filter: (id = $2)"}, ""},
	} {
		if _, key := unusedKey(c.plan, keys); key != c.key {
			t.Errorf("%s: %q is unused, want %q", name, key, c.key)
		}
	}
}
