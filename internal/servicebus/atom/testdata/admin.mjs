// Drives Microsoft's administration client for JavaScript. Prints "ok" and a name for each check.
import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const client = new ServiceBusAdministrationClient(process.env.CONNECTION);
const weak = new ServiceBusAdministrationClient(process.env.WEAK, { retryOptions: { maxRetries: 0 } });
const check = async (name, run) => {
  await run();
  console.log("ok", name);
};
const fails = (promise, code, text) =>
  assert.rejects(promise, (e) => {
    assert.equal(e.code, code, e.message);
    assert.ok(e.message.includes(text), e.message);
    return true;
  });

await check("queues", async () => {
  const options = {
    lockDuration: "PT45S", requiresSession: true, requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: "PT4H", defaultMessageTimeToLive: "P1DT2H",
    deadLetteringOnMessageExpiration: true, maxDeliveryCount: 7, enableBatchedOperations: false, status: "SendDisabled", userMetadata: "hello & <bye>", maxSizeInMegabytes: 2048,
    autoDeleteOnIdle: "PT1H", enablePartitioning: false, maxMessageSizeInKilobytes: 512,
    authorizationRules: [{ accessRights: ["Manage", "Send", "Listen"], keyName: "all", claimType: "SharedAccessKey", claimValue: "None", primaryKey: "a", secondaryKey: "b" }],
  };
  const made = await client.createQueue("js/queue", options);
  const got = await client.getQueue("js/queue");
  for (const [name, value] of Object.entries(options)) {
    if (name === "authorizationRules") continue;
    assert.deepEqual(made[name], value, name);
    assert.deepEqual(got[name], value, name);
  }
  assert.equal(got.name, "js/queue");
  assert.deepEqual(got.authorizationRules[0].accessRights, ["Manage", "Send", "Listen"]);
  got.status = "Active";
  got.lockDuration = "PT50S";
  const updated = await client.updateQueue(got);
  assert.equal(updated.lockDuration, "PT50S");
  assert.equal(updated.status, "Active");
  const runtime = await client.getQueueRuntimeProperties("js/queue");
  assert.equal(runtime.totalMessageCount, 0);
  assert.equal(runtime.activeMessageCount, 0);
  assert.ok(runtime.createdAt > new Date("2020-01-01"));
  assert.equal(await client.queueExists("js/queue"), true);
  assert.equal(await client.queueExists("missing"), false);
});
await check("topics and subscriptions", async () => {
  const topic = await client.createTopic("topic", { defaultMessageTimeToLive: "PT5M", supportOrdering: true, userMetadata: "t" });
  assert.equal(topic.defaultMessageTimeToLive, "PT5M");
  assert.equal(topic.autoDeleteOnIdle, "P10675199DT2H48M5.4775807S");
  topic.userMetadata = "u";
  assert.equal((await client.updateTopic(topic)).userMetadata, "u");
  await client.createQueue("target");
  const sub = await client.createSubscription("topic", "sub", { forwardTo: "target", maxDeliveryCount: 3, deadLetteringOnFilterEvaluationExceptions: false });
  assert.ok(sub.forwardTo.endsWith("/target"), sub.forwardTo);
  assert.equal(sub.topicName, "topic");
  assert.equal(sub.subscriptionName, "sub");
  assert.equal(sub.deadLetteringOnFilterEvaluationExceptions, false);
  sub.maxDeliveryCount = 4;
  assert.equal((await client.updateSubscription(sub)).maxDeliveryCount, 4);
  assert.equal((await client.getSubscriptionRuntimeProperties("topic", "sub")).totalMessageCount, 0);
  assert.equal((await client.getTopicRuntimeProperties("topic")).subscriptionCount, 1);
  assert.equal(await client.subscriptionExists("topic", "sub"), true);
  assert.equal(await client.subscriptionExists("topic", "no"), false);
});
await check("rules", async () => {
  const at = new Date("2001-01-01T01:02:03.000Z");
  const sqlParameters = { "@s": "it's", "@x": 1.5, "@b": true, "@at": at, "@n": 7 };
  const filter = { sqlExpression: "a=@s OR b=@x OR c=@b OR d=@at OR e=@n", sqlParameters };
  const action = { sqlExpression: "SET a=@s", sqlParameters: { "@s": "x" } };
  const made = await client.createRule("topic", "sub", "sql", filter, action);
  assert.deepEqual(made.filter, filter);
  assert.deepEqual(made.action, action);
  const correlation = { correlationId: "a", subject: "b", to: "c", replyTo: "d", replyToSessionId: "e", sessionId: "f", messageId: "g", contentType: "h", applicationProperties: { s: "x", n: 2.5, b: false, at } };
  assert.deepEqual((await client.createRule("topic", "sub", "correlation", correlation)).filter, correlation);
  const read = await client.getRule("topic", "sub", "sql");
  assert.equal(read.name, "sql");
  read.filter = { sqlExpression: "a=2" };
  assert.equal((await client.updateRule("topic", "sub", read)).filter.sqlExpression, "a=2");
  const names = [];
  for await (const r of client.listRules("topic", "sub")) names.push(r.name);
  assert.deepEqual(names, ["$Default", "correlation", "sql"]);
  await client.deleteRule("topic", "sub", "sql");
  assert.equal(await client.ruleExists("topic", "sub", "sql"), false);
  await client.createSubscription("topic", "first", { defaultRuleOptions: { name: "mine", filter: { sqlExpression: "b = 1" } } });
  assert.equal((await client.getRule("topic", "first", "mine")).filter.sqlExpression, "b = 1");
});
await check("lists by pages", async () => {
  for (let i = 0; i < 5; i++) await client.createQueue(`list-${i}`);
  const sizes = [];
  const names = [];
  for await (const page of client.listQueues().byPage({ maxPageSize: 3 })) {
    sizes.push(page.length);
    names.push(...page.map((q) => q.name));
  }
  assert.deepEqual(sizes, [3, 3, 1]);
  assert.deepEqual(names, ["js/queue", "list-0", "list-1", "list-2", "list-3", "list-4", "target"]);
  let topics = 0;
  for await (const t of client.listTopicsRuntimeProperties()) topics += t.name === "topic" ? 1 : 0;
  assert.equal(topics, 1);
  const subs = [];
  for await (const s of client.listSubscriptions("topic")) subs.push(s.subscriptionName);
  assert.deepEqual(subs, ["first", "sub"]);
});
await check("errors", async () => {
  await fails(client.createQueue("js/queue"), "MessageEntityAlreadyExistsError", "SubCode=40900");
  await fails(client.createTopic("topic"), "MessageEntityAlreadyExistsError", "SubCode=40900");
  await fails(client.createSubscription("topic", "sub"), "MessageEntityAlreadyExistsError", "SubCode=40900");
  await fails(client.createRule("topic", "sub", "correlation", { sqlExpression: "1=1" }), "MessageEntityAlreadyExistsError", "SubCode=40900");
  const target = await client.getQueue("target");
  for (const call of [
    () => client.getQueue("missing"), () => client.getTopic("missing"), () => client.getSubscription("topic", "missing"), () => client.getRule("topic", "sub", "missing"),
    () => client.updateQueue({ ...target, name: "missing" }), () => client.createSubscription("missing", "sub"),
  ]) await fails(call(), "MessageEntityNotFoundError", "");
  for (const call of [
    () => client.deleteQueue("missing"), () => client.deleteTopic("missing"), () => client.deleteSubscription("topic", "missing"), () => client.deleteRule("topic", "sub", "missing"),
  ]) await fails(call(), "MessageEntityNotFoundError", "SubCode=40400");
  for (const call of [
    () => client.createQueue("wrong", { lockDuration: "x" }), () => client.createTopic("wrong", { defaultMessageTimeToLive: "x" }),
    () => client.createSubscription("topic", "wrong", { lockDuration: "PT1H" }), () => client.createRule("topic", "sub", "bad", { sqlExpression: "a = =" }),
  ]) await fails(call(), "ServiceError", "SubCode=40000");
  await fails(client.createRule("crowded", "sub", "more"), "QuotaExceededError", "SubCode=40300");
  const queue = await client.getQueue("js/queue");
  await fails(client.updateQueue({ ...queue, requiresSession: false }), "ServiceError", "RequiresSession property of an existing Queue cannot be changed");
  await fails(weak.getQueue("js/queue"), "UnauthorizedRequestError", "Manage,EntityRead claims required");
  await fails(weak.createQueue("x"), "UnauthorizedRequestError", "Manage,EntityWrite");
});
await check("the namespace", async () => {
  const n = await client.getNamespaceProperties();
  assert.equal(n.messagingSku, "Premium");
  assert.equal(n.messagingUnits, 1);
});
await check("deletes", async () => {
  await client.deleteSubscription("topic", "sub");
  await client.deleteTopic("topic");
  await client.deleteQueue("js/queue");
  assert.equal(await client.topicExists("topic"), false);
});
