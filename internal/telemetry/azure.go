package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/forebayhq/forebay/internal/azurebus"
)

type (
	connectorLabels        struct{ connector, outcome string }
	connectorFailureLabels struct{ connector, code string }
)

// AzureServiceBus returns the observer of a connector to Azure Service Bus whose messages can have
// these outcomes. Their series exist from the start, so that a first count is an increase.
func (t *Telemetry) AzureServiceBus(connector string, outcomes ...string) azurebus.Observer {
	if t == nil || t.metrics == nil {
		return azurebus.Observer{}
	}
	for _, outcome := range outcomes {
		t.metrics.azureMessages.of(connectorLabels{connector, outcome})
	}
	return azurebus.Observer{
		Messages: func(connector, outcome string, n int) {
			t.metrics.azureMessages.of(connectorLabels{connector, outcome}).add(float64(n))
		},
		Failed: func(connector, code string) {
			t.metrics.azureFailures.of(connectorFailureLabels{connector, code}).add(1)
		},
	}
}

func (m *metrics) ofConnectors(r *recorder) {
	m.azureMessages = newVector(r, counter(azureMessages, "{message}", "Messages that a connector to Azure Service Bus is done with."), labelling[connectorLabels]{
		rest: connectorLabels{connector: other},
		attrs: func(l connectorLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyConnector.String(l.connector), keyOutcome.String(l.outcome)}
		},
	})
	failures := newKnown(maxErrorTypes, otherError)
	m.azureFailures = newVector(r, counter(azureFailures, "{failure}", "Failures after which a connector to Azure Service Bus paused."), labelling[connectorFailureLabels]{
		bound: func(l connectorFailureLabels) connectorFailureLabels {
			l.code = failures.admit(l.code)
			return l
		},
		rest: connectorFailureLabels{connector: other},
		attrs: func(l connectorFailureLabels) []attribute.KeyValue {
			return []attribute.KeyValue{keyConnector.String(l.connector), semconv.ErrorTypeKey.String(l.code)}
		},
	})
}
