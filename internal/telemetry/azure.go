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

// AzureServiceBus returns the observer of connectors to Azure Service Bus.
func (t *Telemetry) AzureServiceBus() azurebus.Observer {
	if t == nil || t.metrics == nil {
		return azurebus.Observer{}
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
	// They exist from the start, so that a first count is an increase.
	for _, outcome := range []string{azurebus.Accepted, azurebus.DeadLettered, azurebus.Abandoned, azurebus.Sent} {
		m.azureMessages.of(connectorLabels{connector: other, outcome: outcome})
	}
	m.azureFailures.of(connectorFailureLabels{connector: other, code: other})
}
