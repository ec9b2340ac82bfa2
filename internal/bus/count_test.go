package bus

import (
	"testing"

	"github.com/forebayhq/forebay/internal/bus/entity"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/dbtest"
)

// BenchmarkMessageCounts counts a queue of a million messages.
func BenchmarkMessageCounts(b *testing.B) {
	const columns = "INSERT INTO messages (seq, subqueue, flow, visible_at, size, tenant) SELECT n, ?1 + 0, 0, ?2 - n, 1000, 1 FROM "
	for name, fill := range map[string]string{
		"sqlite":     "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000000) " + columns + "s",
		"postgresql": columns + "generate_series(1, 1000000) AS n",
	} {
		b.Run(name, func(b *testing.B) {
			s := fixture.Serving(b, dbtest.Databases[name](b))
			q := MessageQueue{No: 7}
			_, err := db.Transact(b.Context(), s.DB.Writer, db.Op{Stage: db.StageChange}, func(t *db.Tx) (struct{}, error) {
				return struct{}{}, t.Prep(fill).Int(q.No * 4).Int(t.Now).Exec()
			})
			mustDo(b, err)
			for b.Loop() {
				if c, err := s.Bus.MessageCounts(b.Context(), q, entity.CountLimit); err != nil || c.Active != entity.CountLimit || !c.Capped {
					b.Fatal(err, c)
				}
			}
		})
	}
}
