package request

import "github.com/forebayhq/forebay"

// CheckRedrive checks what a redrive asks for. Its error is CodeInvalidRequest.
func CheckRedrive(req forebay.RedriveRequest) error {
	switch {
	case req.Filter.Empty() && !req.All && !req.DryRun:
		return forebay.Invalid("filter", "is empty; to redrive everything, say \"all\": true")
	case !req.Filter.Empty() && req.All:
		return forebay.Invalid("all", "and a filter exclude each other")
	case req.RatePerSecond < 0 || req.RatePerSecond > 0 && req.RatePerSecond < 0.001 || req.RatePerSecond > 1e6:
		return forebay.Invalid("rate_per_second", "goes from 0.001 to 1000000, or is 0 for all at once")
	case req.Max < 0:
		return forebay.Invalid("max", "must not be negative")
	case req.Edit != nil && len(req.Filter.JobIDs) != 1:
		return forebay.Invalid("edit", "needs filter.job_ids with exactly one id")
	case req.Edit != nil && req.Edit.MaxAttempts != nil && (*req.Edit.MaxAttempts < 1 || *req.Edit.MaxAttempts > forebay.MaxAttemptsLimit):
		return forebay.Invalid("edit.max_attempts", "goes from 1 to %d", forebay.MaxAttemptsLimit)
	}
	return nil
}
