// Runs instances on the server whose address and API key are given, in a worker of its own, and prints what became of them.
const { RetryPolicy, TaskHubGrpcClient, TaskHubGrpcWorker, whenAll, whenAny } = require("@microsoft/durabletask-js");
const { options } = require("./connection.js");

const attempts = {};
const tries = (name) => (attempts[name] = (attempts[name] || 0) + 1);

const square = async (_, n) => n * n;
const twice = async () => {
  if (tries("sdk") < 3) throw new Error("not yet");
  return "mended";
};
const served = async () => {
  if (tries("server") < 3) throw new Error("not yet");
  return "mended";
};

async function* fanOut(ctx, n) {
  const squares = yield whenAll([...Array(n).keys()].map((i) => ctx.callActivity(square, i)));
  return squares.reduce((a, b) => a + b, 0);
}
async function* event(ctx) {
  const approval = ctx.waitForExternalEvent("approval");
  const timeout = ctx.createTimer(600);
  const winner = yield whenAny([approval, timeout]);
  return winner === approval ? approval.getResult() : "too late";
}
async function* timer(ctx) {
  const before = ctx.currentUtcDateTime;
  yield ctx.createTimer(1);
  return ctx.currentUtcDateTime - before >= 999;
}
async function* retrySDK(ctx) {
  return yield ctx.callActivity(twice, null, { retry: new RetryPolicy({ maxNumberOfAttempts: 3, firstRetryIntervalInMilliseconds: 10 }) });
}
async function* retryServer(ctx) {
  return yield ctx.callActivity(served);
}
async function* child(ctx, n) {
  return n + (yield ctx.callActivity(square, n));
}
async function* parent(ctx) {
  return yield ctx.callSubOrchestrator(child, 5);
}
async function* forever(ctx) {
  ctx.setCustomStatus({ waiting: true });
  return yield ctx.waitForExternalEvent("go");
}
async function* task(ctx) {
  return yield ctx.callActivity("forebay.task", { task: "shout", input: "hello" });
}

async function main() {
  const worker = new TaskHubGrpcWorker(options);
  [fanOut, event, timer, retrySDK, retryServer, child, parent, forever, task].forEach((f) => worker.addOrchestrator(f));
  [square, twice, served].forEach((f) => worker.addActivity(f));
  await worker.start();
  const client = new TaskHubGrpcClient(options);
  const until = async (id, status) => {
    for (;;) {
      const state = await client.getOrchestrationState(id, true);
      if (state.runtimeStatus === status) return state;
      await new Promise((done) => setTimeout(done, 20));
    }
  };
  const RUNNING = 0, TERMINATED = 5, SUSPENDED = 7;
  const output = async (id) => {
    const state = await client.waitForOrchestrationCompletion(id, true, 60);
    return state.failureDetails ? "failed: " + state.failureDetails.message : state.serializedOutput;
  };
  const results = {};
  const plain = { fanOut: 30, timer: null, retrySDK: null, retryServer: null, parent: null, task: null };
  for (const [name, input] of Object.entries(plain)) results[name] = await output(await client.scheduleNewOrchestration(name, input));
  results.attempts = attempts;

  let id = await client.scheduleNewOrchestration("event");
  await client.waitForOrchestrationStart(id);
  await client.raiseOrchestrationEvent(id, "approval", "yes");
  results.event = await output(id);

  id = await client.scheduleNewOrchestration("forever");
  await until(id, RUNNING);
  await client.suspendOrchestration(id);
  results.suspended = (await until(id, SUSPENDED)).serializedCustomStatus;
  await client.raiseOrchestrationEvent(id, "go", 42);
  await client.resumeOrchestration(id);
  results.resumed = await output(id);

  id = await client.scheduleNewOrchestration("forever");
  await until(id, RUNNING);
  await client.terminateOrchestration(id, "enough");
  results.terminated = (await until(id, TERMINATED)).serializedOutput;
  results.purged = (await client.purgeOrchestration(id)).deletedInstanceCount;
  results.gone = (await client.getOrchestrationState(id)) === undefined;

  await client.stop();
  await worker.stop();
  console.log(JSON.stringify(results));
}

main().then(() => process.exit(0), (err) => {
  console.error(err);
  process.exit(1);
});
