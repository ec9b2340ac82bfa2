package webhook

import "testing"

func TestPlansOnPostgres(t *testing.T) {
	fixture.PlansOnPostgres(t, sqlWebhookCapacity, sqlSweepWebhookDeliveries, sqlEndedDelivery)
}
