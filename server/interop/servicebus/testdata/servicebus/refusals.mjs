import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";
import Long from "long";

// What Forebay refuses, by Azure's SDK for JavaScript. Each check prints a line that begins with "ok".
const clients = [];

function as(name, timeoutInMs = 120000) {
  const client = new ServiceBusClient(process.env[name], { retryOptions: { maxRetries: 0, timeoutInMs } });
  clients.push(client);
  return client;
}

async function check(name, f) {
  try {
    await f();
    console.log("ok " + name);
  } catch (error) {
    console.log("failed " + name + ": " + (error.stack ?? error));
    process.exitCode = 1;
  }
}

async function untilError(f) {
  for (let i = 0; i < 1000; i++) await f();
}

// The SDK has no code of its own for some conditions, but names them in the text.
const named = (name) => ({ code: "GeneralError", message: new RegExp(`^${name}: `) });

const owner = as("OWNER");

await check("full", async () => {
  const sender = as("FULL").createSender("full");
  await assert.rejects(untilError(() => sender.sendMessages({ body: "x" })), { code: "QuotaExceeded" });
});

await check("busy", async () => {
  const receiver = as("BUSY").createReceiver("busy");
  await assert.rejects(untilError(() => receiver.peekMessages(1)), { code: "ServiceBusy" });
});

await check("wrong key", async () => {
  await assert.rejects(as("WRONG").createSender("orders").sendMessages({ body: "x" }), { code: "UnauthorizedAccess" });
});

await check("may not send", async () => {
  await assert.rejects(as("LISTENS").createSender("orders").sendMessages({ body: "x" }), { code: "UnauthorizedAccess" });
});

await check("may not listen", async () => {
  await assert.rejects(as("SENDS").createReceiver("orders").receiveMessages(1, { maxWaitTimeInMs: 60000 }), { code: "UnauthorizedAccess" });
});

await check("disabled", async () => {
  await assert.rejects(owner.createReceiver("closed").receiveMessages(1, { maxWaitTimeInMs: 60000 }), { code: "MessagingEntityDisabled" });
});

await check("no such deferred message", async () => {
  await assert.rejects(owner.createReceiver("orders").receiveDeferredMessages(Long.fromNumber(2 ** 40)), { code: "MessageNotFound" });
});

await check("no such scheduled message", async () => {
  await assert.rejects(owner.createSender("orders").cancelScheduledMessages(Long.fromNumber(2 ** 40)), { code: "MessageNotFound" });
});

await check("an argument", async () => {
  await assert.rejects(owner.createSender("orders").sendMessages({ body: "x", messageId: "\u0001" }), named("ArgumentError"));
});

await check("not allowed", async () => {
  await assert.rejects(owner.createSender("sessions").sendMessages({ body: "x" }), named("InvalidOperationError"));
  await assert.rejects(owner.createReceiver("sessions").receiveMessages(1, { maxWaitTimeInMs: 60000 }), named("InvalidOperationError"));
});

await check("rules", async () => {
  const rules = owner.createRuleManager("events", "all");
  await assert.rejects(rules.createRule("$Default", { sqlExpression: "1=1" }), { code: "MessagingEntityAlreadyExists" });
  await assert.rejects(rules.createRule("bad", { sqlExpression: "a = =" }), { code: "GeneralError" });
  await assert.rejects(rules.deleteRule("none"), { code: "MessagingEntityNotFound" });
  await assert.rejects(owner.createRuleManager("events", "crowded").createRule("more", { sqlExpression: "1=1" }), { code: "QuotaExceeded" });
  await assert.rejects(as("SENDS").createRuleManager("events", "all").createRule("more", { sqlExpression: "1=1" }), { code: "UnauthorizedAccess" });
});

await check("no session is free", async () => {
  // The server waits for as long as the client says.
  await assert.rejects(as("OWNER", 1000).acceptNextSession("sessions"), { code: "ServiceTimeout", message: /No session became available/ });
});

await check("session lock lost", async () => {
  await owner.createSender("sessions").sendMessages({ body: "x", sessionId: "a" });
  const lost = await owner.acceptSession("sessions", "a", { maxAutoLockRenewalDurationInMs: 0 });
  const next = await as("OWNER").acceptNextSession("sessions"); // once the lock has ended
  assert.equal(next.sessionId, "a");
  await assert.rejects(lost.getSessionState(), { code: "SessionLockLost" });
  await assert.rejects(lost.renewSessionLock(), { code: "SessionLockLost" });
});

for (const client of clients) await client.close();
