// Package crash is for tests: what servers promise while their processes are killed and disturbed.
//
// A test runs one server process on SQLite, or several on PostgreSQL, and goes on as a client.
// These are the promises:
//
//   - An acknowledged job ends, and has one result. Jobs of a session run in order. Clients miss
//     no event. The audit log is whole. (TestSurvivesCrashes, TestManyProcesses,
//     TestEventStreamResumesAfterACrash)
//   - A graceful stop takes no attempt from a job. (TestGracefulStopChargesNothing)
//   - A job that kills its process is set aside. (TestJobThatKillsItsWorkerIsSetAside)
//   - A second process cannot use a SQLite file, even if the first does not answer.
//     (TestSecondServerOnTheSameDatabase)
//   - Locks, schedules and deadlines go by the database's clock. (TestClocksThatDiffer)
//   - A full disk loses nothing that was acknowledged. (TestFullDisk, TestFilesThatCannotGrow)
//
// What else is done by way of jobs and messages has its promises in server/crash/kills.
//
// These are the disturbances:
//
//   - A process is killed, stopped gracefully, or frozen for longer than its locks last.
//   - PostgreSQL restarts or ends all connections. Connections are cut, or their packets vanish.
//   - The clocks of processes and of the database differ by 90 seconds.
//   - A disk has no space, or files cannot grow.
//
// Processes run this test binary again (internal/servertest). Tests that log FOREBAY_CRASH_SEED
// repeat their choices when they are given it.
package crash
