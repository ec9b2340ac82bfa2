// Package kills is for tests: what servers promise of each kind of work while their processes are
// killed.
//
// A test runs one server process on SQLite, or several on PostgreSQL, and goes on as a client.
// These are the promises:
//
//   - A budget is never overspent, and limits of tenants hold. (TestBudgetHoldsThroughCrashes,
//     TestLimitsUnderKills)
//   - A message becomes one job, which answers once. (TestIntakeUnderKills, TestAnswersUnderKills)
//   - A message that a client of Service Bus completed does not come again.
//     (TestServiceBusUnderKills)
//   - Batches, background responses, documents and workflows get to their ends. What was recorded
//     is not done again. (TestBatchesSurviveCrashes, TestResponsesSurviveKills,
//     TestDocumentsSurviveCrashes, TestWorkflowsSurviveKills)
//
// Processes run this test binary again (internal/servertest). Tests that log FOREBAY_CRASH_SEED
// repeat their choices when they are given it.
package kills
