package stores_test

import "testing"

// All forms are registered here, for all domains are linked.
func TestPlansOnPostgres(t *testing.T) { fixture.PlansOnPostgres(t) }
