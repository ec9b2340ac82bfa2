// A whole program with Microsoft's Durable Task SDK for JavaScript (npm: @microsoft/durabletask-js) and Forebay.
//
//     forebay serve                      # with orchestrations.grpc.address: 127.0.0.1:4001
//     npm install
//     node program.js 127.0.0.1:4001 [KEY]
//
// It is a worker and a client in one process. Each line that it prints says what became of one orchestration.
const grpc = require("@grpc/grpc-js");
const { NoOpLogger, OrchestrationStatus, RetryPolicy, TaskHubGrpcClient, TaskHubGrpcWorker, whenAll } = require("@microsoft/durabletask-js");

const failures = new Map();

const hello = async (_, name) => `Hello ${name}!`;

const square = async (_, number) => number * number;

// Fails twice.
const flaky = async (_, key) => {
  failures.set(key, (failures.get(key) ?? 0) + 1);
  if (failures.get(key) < 3) throw new Error("not yet");
  return failures.get(key);
};

async function* chain(ctx, name) {
  const greeting = yield ctx.callActivity(hello, name);
  return yield ctx.callActivity(hello, greeting);
}

async function* fanOut(ctx, n) {
  const squares = yield whenAll([...Array(n).keys()].map((i) => ctx.callActivity(square, i)));
  return squares.reduce((sum, s) => sum + s, 0);
}

async function* retried(ctx, key) {
  return yield ctx.callActivity(flaky, key, { retry: new RetryPolicy({ firstRetryIntervalInMilliseconds: 100, maxNumberOfAttempts: 5 }) });
}

async function* timer(ctx) {
  yield ctx.createTimer(0.2);
  return "later";
}

async function* approval(ctx) {
  return yield ctx.waitForExternalEvent("approved");
}

async function* parent(ctx, n) {
  return yield ctx.callSubOrchestrator(fanOut, n);
}

async function main(hostAddress, key) {
  const metadataGenerator = async () => {
    const metadata = new grpc.Metadata();
    if (key) metadata.set("authorization", "Bearer " + key);
    return metadata;
  };
  const options = { hostAddress, metadataGenerator, logger: new NoOpLogger() };
  const worker = new TaskHubGrpcWorker(options);
  for (const orchestrator of [chain, fanOut, retried, timer, approval, parent]) worker.addOrchestrator(orchestrator);
  for (const activity of [hello, square, flaky]) worker.addActivity(activity);
  await worker.start();
  const client = new TaskHubGrpcClient(options);

  const ended = async (name, instance) => {
    const state = await client.waitForOrchestrationCompletion(instance, true, 60);
    console.log(name, OrchestrationStatus[state.runtimeStatus], state.serializedOutput);
  };
  for (const [orchestrator, input] of [[chain, "you"], [fanOut, 5], [retried, "k"], [timer, null], [parent, 4]]) {
    await ended(orchestrator.name, await client.scheduleNewOrchestration(orchestrator, input));
  }

  let instance = await client.scheduleNewOrchestration(approval);
  await client.waitForOrchestrationStart(instance, false, 60);
  await client.resumeOrchestration(instance); // it is not suspended: nothing happens
  await client.suspendOrchestration(instance);
  await client.resumeOrchestration(instance);
  await client.raiseOrchestrationEvent(instance, "approved", "by me");
  await ended("approval", instance);

  instance = await client.scheduleNewOrchestration(approval);
  await client.waitForOrchestrationStart(instance, false, 60);
  await client.terminateOrchestration(instance, "enough");
  await ended("terminated", instance);

  await client.stop();
  await worker.stop();
}

main(...process.argv.slice(2)).catch((err) => {
  console.error(err);
  process.exit(1);
});
