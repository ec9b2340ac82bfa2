package postgres

import (
	"net/url"
	"strings"
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/pgtest"
)

func openPostgresConn(t *testing.T) *Conn {
	address, err := url.Parse(pgtest.Database(t))
	mustDo(t, err)
	query := address.Query()
	query.Set("search_path", "public") // which there is
	address.RawQuery = query.Encode()
	c, err := ConnectURL(t.Context(), address.String())
	mustDo(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// The server stops reading while nobody takes what it answers: both directions are as long as
// no buffer between is.
func TestLongQuestionsAndAnswers(t *testing.T) {
	c := openPostgresConn(t)
	long := strings.Repeat("x", 48<<20)
	answered, asked := 0, int64(0)
	c.patience()
	err := c.ask([]driver.PipelineQuery{
		{SQL: "SELECT repeat('x', CAST(? AS integer))", Bind: func(st driver.Statement) driver.Statement { return st.Int(int64(len(long))) }, OnRow: func(r driver.Row) { answered = len(r.Text(0)) }},
		{SQL: "SELECT length(CAST(? AS text))", Bind: func(st driver.Statement) driver.Statement { return st.Text(long) }, OnRow: func(r driver.Row) { asked = r.Int(0) }},
	})
	if err != nil || answered != len(long) || asked != int64(len(long)) {
		t.Errorf("%d bytes were answered, %d understood (%v)", answered, asked, err)
	}
}

func TestEmptyIsNotNull(t *testing.T) {
	c := driver.Conn{Driver: openPostgresConn(t)}
	_, err := c.Prep("SELECT CAST('' AS text), CAST(NULL AS text)").One(func(r driver.Row) {
		if r.IsNull(0) || !r.IsNull(1) {
			t.Errorf("an empty text is NULL: %v, NULL is: %v", r.IsNull(0), r.IsNull(1))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// After an error in the middle nothing is handed over, and the connection goes on.
func TestErrorAmongQuestions(t *testing.T) {
	c := openPostgresConn(t)
	ran := 0
	count := func(driver.Row) { ran++ }
	c.patience()
	err := c.ask([]driver.PipelineQuery{{SQL: "SELECT 1", OnRow: count}, {SQL: "SELECT 1 / (SELECT 0)", OnRow: count}, {SQL: "SELECT 2", OnRow: count}})
	if err == nil || ran != 0 {
		t.Errorf("%d rows were handed over (%v)", ran, err)
	}
	if n, err := c.millis(SQLNow); err != nil || n == 0 {
		t.Errorf("the next statement: %v", err)
	}
	again := []driver.PipelineQuery{{SQL: "SELECT 1", OnRow: count}, {SQL: "SELECT 2", OnRow: count}} // of which the server has prepared one
	if err := c.ask(again); err != nil || ran != 2 {
		t.Errorf("%d rows were handed over afterwards (%v)", ran, err)
	}
}

// A statement that is new takes no round trip of its own.
func TestStatementsArePreparedAsTheyRun(t *testing.T) {
	direct := pgtest.Database(t)
	proxy := pgtest.NewProxy(t, direct)
	c, err := ConnectURL(t.Context(), proxy.URL(direct))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	conn := driver.Conn{Driver: c}
	for i, new := range []string{"", " AND 1 = 1"} {
		before := proxy.RoundTrips()
		mustDo(t, c.ExecSimple("CREATE TEMPORARY TABLE IF NOT EXISTS tried (no BIGINT, text TEXT)"))
		_, err := c.Begin(driver.BeginOptions{})
		mustDo(t, err)
		for n := range int64(3) {
			mustDo(t, conn.Prep("INSERT INTO tried (no, text) VALUES (?, ?)").Int(n).Text("a").Exec())
			mustDo(t, conn.Prep("UPDATE tried SET text = ? WHERE no = ?"+new).Text("b").Int(n).Exec())
		}
		mustDo(t, c.Commit())
		if trips := proxy.RoundTrips() - before; trips > 3 {
			t.Errorf("transaction %d took %d round trips with what was made before it", i, trips)
		}
	}
}
