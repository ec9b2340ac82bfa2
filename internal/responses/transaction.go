package responses

import (
	"github.com/forebayhq/forebay"
	"github.com/forebayhq/forebay/internal/bus"
	"github.com/forebayhq/forebay/internal/db"
	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/jobs/events"
	"github.com/forebayhq/forebay/internal/responses/bridge"
)

var key = db.NewKey(func(t *db.Tx, _ *participant) *tx { return &tx{Tx: t} })

type participant struct{ db.Passive }

// OperationsEnded tells of the responses that operations have ended.
func (p *participant) OperationsEnded(t *db.Tx) error { return p.Serve(t) }

// Serve tells of the responses that the participants before it have ended.
func (p *participant) Serve(t *db.Tx) error {
	r := key.Begun(t)
	if r == nil {
		return nil
	}
	ends := r.ends
	r.ends = nil
	return events.PublishObjects(t, ends)
}

type tx struct {
	*db.Tx
	ends []events.ObjectEnd // that subscribers do not know yet
}

// ended notes that a background response has ended.
func (t *tx) ended(tenant int64, id, status string) {
	t.ends = append(t.ends, events.ObjectEnd{Tenant: tenant, Kind: forebay.EventType("response." + status), ID: id})
}

// endWithJob ends the response that the job makes, if there is one that has not ended. It asks
// which one it was only where somebody follows events.
func (t *tx) endWithJob(seq int64, status string, failure *bridge.Failure) error {
	end := func(sql string) driver.Statement {
		st := t.Prep(sql).Text(status)
		if failure == nil {
			st = st.Null(driver.KindText).Blob(nil)
		} else {
			st = st.Text(failure.Code).Blob([]byte(failure.Message))
		}
		return st.Int(t.Now).Int(seq)
	}
	f, err := bus.Key.Of(t.Tx).Topics.Followed()
	if err != nil {
		return err
	}
	if len(f.Topics) == 0 && !t.Heard() {
		return end(sqlEndWithJob).Exec()
	}
	_, err = end(sqlEndWithJob + " RETURNING id, tenant").One(func(r driver.Row) { t.ended(r.Int(1), r.Text(0), status) })
	return err
}
