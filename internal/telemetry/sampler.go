package telemetry

import (
	"fmt"
	"strconv"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// samplerOf returns the sampler that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG name.
// Samplers that follow a span's parent also follow its link.
func samplerOf(getenv func(string) string) (sdktrace.Sampler, error) {
	name, arg := getenv("OTEL_TRACES_SAMPLER"), getenv("OTEL_TRACES_SAMPLER_ARG")
	ratio := 1.0
	if arg != "" && (name == "traceidratio" || name == "parentbased_traceidratio") {
		var err error
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: must be a share from 0 to 1")
		}
	}
	switch name {
	case "", "parentbased_always_on":
		return linked{sdktrace.ParentBased(sdktrace.AlwaysSample())}, nil
	case "parentbased_always_off":
		return linked{sdktrace.ParentBased(sdktrace.NeverSample())}, nil
	case "parentbased_traceidratio":
		return linked{sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))}, nil
	case "always_on":
		return sdktrace.AlwaysSample(), nil
	case "always_off":
		return sdktrace.NeverSample(), nil
	case "traceidratio":
		return sdktrace.TraceIDRatioBased(ratio), nil
	}
	return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: %.40q is none of always_on, always_off, traceidratio and these after parentbased_", name)
}

// linked samples a root span with one link exactly if the linked span was sampled. So an attempt
// is traced if its submit was.
type linked struct{ sdktrace.Sampler }

func (s linked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if len(p.Links) == 1 && !trace.SpanContextFromContext(p.ParentContext).IsValid() {
		p.ParentContext = trace.ContextWithRemoteSpanContext(p.ParentContext, p.Links[0].SpanContext)
	}
	return s.Sampler.ShouldSample(p)
}
