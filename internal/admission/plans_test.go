package admission

import "testing"

func TestPlansOnSQLite(t *testing.T) { fixture.PlansOnSQLite(t, nil, sqlSpent) }

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlStates, sqlAllStates, sqlPlace, sqlInherited, sqlSpent, sqlWaits)
}
