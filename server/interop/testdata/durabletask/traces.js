// Has OpenTelemetry make traces in the process that is started with it, so that the SDK tells of them.
const { NodeTracerProvider } = require("@opentelemetry/sdk-trace-node");
new NodeTracerProvider().register();
