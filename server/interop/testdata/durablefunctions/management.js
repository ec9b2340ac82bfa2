// Manages instances with Microsoft's client for Durable Functions, as a function app would, and prints what it saw. The client is told the addresses
// either by their base or one by one, with a key in each.
const { DurableClient } = require("durable-functions/lib/src/durableClient/DurableClient");

const [base, key] = process.argv.slice(2);
const query = `taskHub=hub&connection=Storage&code=${key}`;
const at = (path) => `${base}/instances/INSTANCE${path}`;
const client = new DurableClient({
  taskHubName: "hub",
  creationUrls: { createNewInstancePostUri: `${base}/orchestrators/{functionName}[/{instanceId}]?${query}` },
  managementUrls: {
    id: "INSTANCE",
    statusQueryGetUri: at(`?${query}`),
    sendEventPostUri: at(`/raiseEvent/{eventName}?${query}`),
    terminatePostUri: at(`/terminate?reason={text}&${query}`),
    suspendPostUri: at(`/suspend?reason={text}&${query}`),
    resumePostUri: at(`/resume?reason={text}&${query}`),
    rewindPostUri: at(`/rewind?reason={text}&${query}`),
    purgeHistoryDeleteUri: at(`?${query}`),
  },
  rpcBaseUrl: key ? undefined : `${base}/`,
});

const until = async (id, status) => {
  for (const begun = Date.now(); ; await new Promise((again) => setTimeout(again, 5))) {
    const seen = await client.getStatus(id);
    if (seen.runtimeStatus === status) return seen;
    if (Date.now() - begun > 60_000) throw new Error(`${id} is ${seen.runtimeStatus}, not ${status}`);
  }
};
const ids = (instances) => instances.map((i) => i.instanceId).sort();

(async () => {
  const saw = {};
  saw.started = await client.startNew("wait", { instanceId: "a", input: { n: 1 } });
  await until("a", "Running");
  await client.suspend("a", "lunch");
  await until("a", "Suspended");
  await client.resume("a", "lunch is over");
  await until("a", "Running");
  await client.raiseEvent("a", "go", { ok: true });
  const ended = await until("a", "Completed");
  saw.raised = [ended.input, ended.output];
  await client.startNew("wait", { instanceId: "b" });
  await client.terminate("b", "enough");
  saw.terminated = (await until("b", "Terminated")).output;
  await client.startNew("flaky", { instanceId: "c" });
  await until("c", "Failed");
  await client.rewind("c", "mended");
  saw.rewound = (await until("c", "Completed")).output;
  await client.startNew("wait", { instanceId: "b", input: "again" }); // its id is free
  await client.raiseEvent("b", "go");
  saw.again = (await until("b", "Completed")).input;
  await client.startNew("wait", { instanceId: "d" });
  await client.terminate("d", "enough");
  await until("d", "Terminated");
  saw.taken = await client.startNew("wait", { instanceId: "e" }).then(() => client.startNew("wait", { instanceId: "e" })).catch(() => "refused");
  saw.all = ids(await client.getStatusAll());
  saw.some = ids(await client.getStatusBy({ createdTimeFrom: new Date(0), createdTimeTo: new Date(Date.now() + 3600_000), runtimeStatus: ["Completed", "Failed"] }));
  saw.one = (await client.purgeInstanceHistory("a")).instancesDeleted;
  saw.none = (await client.purgeInstanceHistory("a")).instancesDeleted;
  saw.ended = (await client.purgeInstanceHistoryBy({ createdTimeFrom: new Date(0), runtimeStatus: ["Terminated"] })).instancesDeleted;
  saw.rest = (await client.purgeInstanceHistoryBy({ createdTimeFrom: new Date(0), createdTimeTo: new Date(Date.now() + 3600_000) })).instancesDeleted;
  saw.left = ids(await client.getStatusAll());
  console.log(JSON.stringify(saw));
})().catch((err) => {
  console.error(err);
  process.exit(1);
});
