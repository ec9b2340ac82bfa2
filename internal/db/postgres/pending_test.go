package postgres

import "testing"

// A statement that has declared nothing and names other tables keeps its place among all that
// wait.
func TestStatementsThatReadOtherTablesKeepTheirPlace(t *testing.T) {
	for sql, opaque := range map[string]bool{
		"UPDATE a SET x = ? WHERE no = ?":                                          false,
		"INSERT INTO a (no, x) VALUES (?, ?) ON CONFLICT (no) DO UPDATE SET x = 1": false,
		"DELETE FROM a WHERE no = ?":                                               false,
		"UPDATE a SET x = (SELECT x FROM b WHERE no = ?) WHERE no = ?":             true,
		"UPDATE a SET x = b.x FROM b WHERE b.no = a.no AND a.no = ?":               true,
		"\nUPDATE a SET x = b.x\nFROM b WHERE b.no = a.no AND a.no = ?":            true,
		"INSERT INTO a (no, x)\nSELECT no, x FROM b WHERE no = ?":                  true,
		"DELETE FROM a\nUSING b WHERE b.no = a.no AND a.no = ?":                    true,
	} {
		if reach, is := reachOf(sql, "a"); is != opaque || len(reach) != 1 || reach[0].Table != "a" || reach[0].By != 0 {
			t.Errorf("%q uses %v, opaque: %t", sql, reach, is)
		}
	}
}
