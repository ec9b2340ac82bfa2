package webhook

import (
	"testing"

	"github.com/forebayhq/forebay/internal/db/driver"
	"github.com/forebayhq/forebay/internal/db/postgres"
)

func TestPlansOnPostgres(t *testing.T) {
	hook := driver.NewPrefetch(sqlEndedHook, driver.RowName{}).Int(1)
	delivery := driver.NewPrefetch(sqlEndedDelivery, driver.RowName{}).Int(1).Int(1).Int(1)
	fixture.PlansOnPostgres(t, sqlWebhookCapacity, sqlSweepWebhookDeliveries, postgres.AheadForm(hook), postgres.AheadForm(delivery))
}
