import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";
import Long from "long";

// Azure's SDK for JavaScript against Forebay. Each check prints a line that begins with "ok".
const client = new ServiceBusClient(process.env.CONNECTION_STRING, { retryOptions: { maxRetries: 0, timeoutInMs: 20000 } });

async function check(name, f) {
  try {
    await f();
    console.log("ok " + name);
  } catch (error) {
    console.log("failed " + name + ": " + (error.stack ?? error));
    process.exitCode = 1;
  }
}

const texts = (messages) => messages.map((m) => m.body);

await check("send and complete", async () => {
  const sender = client.createSender("js");
  await sender.sendMessages({ body: "hello", messageId: "m1", subject: "s", correlationId: "c", contentType: "application/json", timeToLive: 60000, applicationProperties: { a: 1, b: "x", c: true } });
  const receiver = client.createReceiver("js");
  const [m] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(m.body, "hello");
  assert.equal(m.messageId, "m1");
  assert.equal(m.subject, "s");
  assert.equal(m.correlationId, "c");
  assert.equal(m.timeToLive, 60000);
  assert.deepEqual(m.applicationProperties, { a: 1, b: "x", c: true });
  assert.equal(m.deliveryCount, 0);
  await receiver.completeMessage(m);
  assert.deepEqual(await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 }), []);
  await receiver.close();
  await sender.close();
});

await check("bodies of other kinds", async () => {
  const sender = client.createSender("js");
  const receiver = client.createReceiver("js", { receiveMode: "receiveAndDelete" });
  await sender.sendMessages([{ body: { nested: [1, 2] } }, { body: Buffer.from([0, 255]) }, { body: 7 }]);
  const got = await receiver.receiveMessages(3, { maxWaitTimeInMs: 60000 });
  assert.deepEqual(got[0].body, { nested: [1, 2] });
  assert.deepEqual(Buffer.from(got[1].body), Buffer.from([0, 255]));
  assert.equal(got[2].body, 7);
  await sender.sendMessages({ bodyType: "value", body: { key: "v" } });
  const [value] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.deepEqual(value.body, { key: "v" });
  await receiver.close();
  await sender.close();
});

await check("batch", async () => {
  const sender = client.createSender("js");
  const batch = await sender.createMessageBatch();
  for (let i = 0; i < 120; i++) assert.ok(batch.tryAddMessage({ body: String(i) }));
  await sender.sendMessages(batch);
  const receiver = client.createReceiver("js", { receiveMode: "receiveAndDelete" });
  const got = [];
  while (got.length < 120) got.push(...(await receiver.receiveMessages(120 - got.length, { maxWaitTimeInMs: 60000 })));
  assert.deepEqual(texts(got), [...Array(120).keys()].map(String));
  await receiver.close();
  await sender.close();
});

await check("settle in every way", async () => {
  const sender = client.createSender("js");
  await sender.sendMessages(["abandon", "defer", "dead-letter"].map((body) => ({ body })));
  const receiver = client.createReceiver("js");
  const [a, d, x] = await receiver.receiveMessages(3, { maxWaitTimeInMs: 60000 });
  await receiver.abandonMessage(a, { tried: 1 });
  await receiver.deferMessage(d, { later: true });
  await receiver.deadLetterMessage(x, { deadLetterReason: "broken", deadLetterErrorDescription: "no use", more: "y" });
  const [again] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(again.body, "abandon");
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.tried, 1);
  const until = await receiver.renewMessageLock(again);
  assert.ok(until > new Date());
  await receiver.completeMessage(again);
  const [deferred] = await receiver.receiveDeferredMessages(d.sequenceNumber);
  assert.equal(deferred.body, "defer");
  assert.equal(deferred.state, "deferred");
  assert.equal(deferred.applicationProperties.later, true);
  await receiver.completeMessage(deferred);
  const dead = client.createReceiver("js", { subQueueType: "deadLetter" });
  const [letter] = await dead.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(letter.body, "dead-letter");
  assert.equal(letter.deadLetterReason, "broken");
  assert.equal(letter.deadLetterErrorDescription, "no use");
  assert.equal(letter.applicationProperties.more, "y");
  await dead.completeMessage(letter);
  await dead.close();
  await receiver.close();
  await sender.close();
});

await check("schedule, cancel and peek", async () => {
  const sender = client.createSender("js");
  const receiver = client.createReceiver("js");
  const numbers = await sender.scheduleMessages([{ body: "1" }, { body: "2" }], new Date(Date.now() + 3600000));
  assert.equal(numbers.length, 2);
  const peeked = await receiver.peekMessages(10);
  assert.deepEqual(texts(peeked), ["1", "2"]);
  assert.equal(peeked[0].state, "scheduled");
  await sender.cancelScheduledMessages(numbers);
  assert.deepEqual(await receiver.peekMessages(10, { fromSequenceNumber: Long.fromNumber(1) }), []);
  await sender.scheduleMessages({ body: "soon" }, new Date(Date.now() + 500));
  const [m] = await receiver.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(m.body, "soon");
  await receiver.completeMessage(m);
  await receiver.close();
  await sender.close();
});

await check("subscribe", async () => {
  const sender = client.createSender("js");
  const receiver = client.createReceiver("js");
  const got = [];
  await new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        async processMessage(m) {
          got.push(m.body);
          if (got.length === 40) resolve();
        },
        async processError(args) {
          reject(args.error);
        },
      },
      { maxConcurrentCalls: 10 },
    );
    sender.sendMessages([...Array(40).keys()].map((body) => ({ body }))).catch(reject);
  });
  assert.deepEqual(got.sort((a, b) => a - b), [...Array(40).keys()]);
  await receiver.close();
  await sender.close();
});

await check("sessions", async () => {
  const sender = client.createSender("js-sessions");
  await sender.sendMessages([
    { body: "a1", sessionId: "a" },
    { body: "b1", sessionId: "b" },
    { body: "a2", sessionId: "a" },
  ]);
  const session = await client.acceptSession("js-sessions", "a");
  assert.equal(session.sessionId, "a");
  assert.ok(session.sessionLockedUntilUtc > new Date());
  await assert.rejects(client.acceptSession("js-sessions", "a"), { code: "SessionCannotBeLocked" });
  await session.setSessionState("half");
  assert.equal(String(await session.getSessionState()), "half");
  assert.ok((await session.renewSessionLock()) > new Date());
  const got = await session.receiveMessages(2, { maxWaitTimeInMs: 60000 });
  assert.deepEqual(texts(got), ["a1", "a2"]);
  assert.deepEqual(texts(await session.peekMessages(10)), ["a1", "a2"]);
  for (const m of got) await session.completeMessage(m);
  const next = await client.acceptNextSession("js-sessions");
  assert.equal(next.sessionId, "b");
  await session.close();
  await next.close();
  await sender.close();
});

await check("topics and rules", async () => {
  const sender = client.createSender("js-topic");
  const rules = client.createRuleManager("js-topic", "sub");
  await rules.deleteRule("$Default");
  await rules.createRule("red", { sqlExpression: "color = 'red'" }, { sqlExpression: "SET seen = 'yes'" });
  await rules.createRule("exact", { subject: "exact", applicationProperties: { n: 3 } });
  await assert.rejects(rules.createRule("red", { sqlExpression: "1=1" }), { code: "MessagingEntityAlreadyExists" });
  const names = [];
  for await (const rule of rules.listRules()) names.push(rule);
  assert.deepEqual(names.map((r) => r.name).sort(), ["exact", "red"]);
  assert.equal(names.find((r) => r.name === "red").filter.sqlExpression, "color = 'red'");
  assert.equal(names.find((r) => r.name === "red").action.sqlExpression, "SET seen = 'yes'");
  assert.equal(names.find((r) => r.name === "exact").filter.subject, "exact");
  await sender.sendMessages([{ body: "1", applicationProperties: { color: "red" } }, { body: "2", applicationProperties: { color: "blue" } }]);
  const receiver = client.createReceiver("js-topic", "sub");
  const [m] = await receiver.receiveMessages(2, { maxWaitTimeInMs: 60000 });
  assert.equal(m.body, "1");
  assert.equal(m.applicationProperties.seen, "yes");
  await receiver.completeMessage(m);
  await receiver.close();
  await sender.close();
});

await check("errors", async () => {
  const sender = client.createSender("none");
  await assert.rejects(sender.sendMessages({ body: "x" }), { code: "MessagingEntityNotFound" });
  const receiver = client.createReceiver("none");
  await assert.rejects(receiver.receiveMessages(1, { maxWaitTimeInMs: 60000 }), { code: "MessagingEntityNotFound" });
  const large = client.createSender("js");
  await assert.rejects(large.sendMessages({ body: "x".repeat(2 << 20) }), { code: "MessageSizeExceeded" });
  const short = client.createSender("js-short");
  await short.sendMessages({ body: "x" });
  const slow = client.createReceiver("js-short", { maxAutoLockRenewalDurationInMs: 0 });
  const [m] = await slow.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  const [again] = await slow.receiveMessages(1, { maxWaitTimeInMs: 60000 });
  assert.equal(again.body, "x");
  await assert.rejects(slow.completeMessage(m), { code: "MessageLockLost" });
  await slow.completeMessage(again).catch(() => {});
  const closed = client.createSender("js-closed");
  await assert.rejects(closed.sendMessages({ body: "x" }), { code: "MessagingEntityDisabled" });
});

await check("delete", async () => {
  const sender = client.createSender("js-short");
  await sender.sendMessages([{ body: "1" }, { body: "2" }]);
  const receiver = client.createReceiver("js-short");
  if (receiver.deleteMessages) assert.ok((await receiver.deleteMessages({ maxMessageCount: 10 })) >= 2);
  await receiver.close();
  await sender.close();
});

await client.close();
