package store

// Where processes share a database, which is PostgreSQL, one statement ends or renews the locks of many.

// activityLock is the right to settle an attempt of an activity.
type activityLock struct{ instance, event, token int64 }

func (a *Activity) lock() activityLock { return activityLock{a.Instance, int64(a.EventID), a.Token} }

const (
	fromTurnLocks     = "unnest(CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(instance, token) WHERE o.instance = ANY (ARRAY[x.instance]) AND o.token = x.token"
	fromActivityLocks = "unnest(CAST(? AS bigint[]), CAST(? AS bigint[]), CAST(? AS bigint[])) AS x(instance, event_id, token) " +
		"WHERE o.instance = ANY (ARRAY[x.instance]) AND o.event_id = x.event_id AND o.token = x.token"
	sqlEndActivities = "DELETE FROM orchestration_activities o USING " + fromActivityLocks +
		" RETURNING o.instance, o.event_id, o.token, (SELECT t.pool FROM orchestration_turns t WHERE t.instance = o.instance)"
	sqlRenewActivities = "UPDATE orchestration_activities o SET visible = ? FROM " + fromActivityLocks + " RETURNING o.token"
	sqlRenewTurns      = "UPDATE orchestration_turns o SET visible = ? FROM " + fromTurnLocks + " RETURNING o.token"
)

func bindActivityLocks(st statement, locks []activityLock) statement {
	instances, events, tokens := make([]int64, len(locks)), make([]int64, len(locks)), make([]int64, len(locks))
	for i, l := range locks {
		instances[i], events[i], tokens[i] = l.instance, l.event, l.token
	}
	return st.text(arrayOf(instances)).text(arrayOf(events)).text(arrayOf(tokens))
}

// endActivities has those activities removed that the locks hold, and notes for each lock the pool of its instance, or 0 if it held none.
func endActivities(locks []activityLock, ended map[activityLock]int64) question {
	for _, l := range locks {
		ended[l] = 0
	}
	return question{sqlEndActivities, func(st statement) statement { return bindActivityLocks(st, locks) },
		func(r row) { ended[activityLock{r.int(0), r.int(1), r.int(2)}] = r.int(3) }}
}

// renewWorkShared is renewWork in a round trip each for turns and activities.
func (t *tx) renewWorkShared(turns []*Turn, activities []*Activity, until int64, held func(token int64)) error {
	each := func(r row) error {
		held(r.int(0))
		return nil
	}
	if len(turns) > 0 {
		instances, tokens := make([]int64, len(turns)), make([]int64, len(turns))
		for i, turn := range turns {
			instances[i], tokens[i] = turn.Instance, turn.Token
		}
		if err := t.prep(sqlRenewTurns).int(until).text(arrayOf(instances)).text(arrayOf(tokens)).each(each); err != nil {
			return err
		}
	}
	if len(activities) == 0 {
		return nil
	}
	locks := make([]activityLock, len(activities))
	for i, a := range activities {
		locks[i] = a.lock()
	}
	return bindActivityLocks(t.prep(sqlRenewActivities).int(until), locks).each(each)
}
