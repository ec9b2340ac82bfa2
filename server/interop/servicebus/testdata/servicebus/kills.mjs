import { ServiceBusClient } from "@azure/service-bus";

// One of several programs that send to two queues and receive from them while servers are killed
// and connections cut. It prints a line of JSON for each thing that it knows to have happened, and
// ends when its standard input does.
const [connection, name, plainMessages, sessionMessages, sessions] = process.argv.slice(2);
const retryOptions = { maxRetries: 1, retryDelayInMs: 50, timeoutInMs: 5000 };
let ending = false;
let completing = 0;

const say = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const complain = (what) => console.error(`${new Date().toISOString()} ${what}`);
const pause = () => new Promise((resolve) => setTimeout(resolve, 50));
const connect = () => new ServiceBusClient(connection, { retryOptions });

// leave closes a client and does not wait. One whose connection broke while it showed its token is of
// no use for a minute: the SDK waits for the answer that long, and all its links with it.
const leave = (client) => void client.close().catch(() => {});

// send sends messages one after the other. What is not known to be accepted is sent again.
async function send(queue, count, of) {
  let client = connect();
  let sender = client.createSender(queue);
  for (let i = 0; i < count && !ending; i++) {
    const messageId = `${name}-${queue}-${i}`;
    for (;;) {
      try {
        await sender.sendMessages({ body: messageId, messageId, sessionId: of(i) });
        break;
      } catch (error) {
        complain(`send ${messageId}: ${error}`);
        await pause();
        leave(client);
        client = connect();
        sender = client.createSender(queue);
      }
    }
    say({ kind: "sent", id: messageId });
  }
  say({ kind: "finished", id: queue });
}

// inTime is for what the SDK waits a minute for when its connection is gone.
const inTime = (promise) => Promise.race([promise, new Promise((_, reject) => setTimeout(reject, 5000, new Error("no answer in time")))]);

// complete completes messages in their order, up to the first that is not known to be completed.
async function complete(receiver, messages) {
  for (const m of messages) {
    const about = { id: m.messageId, seq: Number(m.sequenceNumber), session: m.sessionId ?? "", count: m.deliveryCount };
    say({ kind: "received", ...about, locked: m.lockedUntilUtc?.getTime() ?? 0 });
    if (ending) return false;
    const from = Date.now();
    completing++;
    try {
      await inTime(receiver.completeMessage(m));
      say({ kind: "completed", ...about, from, to: Date.now() });
    } catch (error) {
      complain(`complete ${m.messageId}: ${error}`);
      say({ kind: "tried", ...about });
      if (m.sessionId) return false;
    } finally {
      completing--;
    }
  }
  return true;
}

async function receivePlain() {
  const start = () => {
    const client = connect();
    return { client, receiver: client.createReceiver("plain", { maxAutoLockRenewalDurationInMs: 0 }) };
  };
  let { client, receiver } = start();
  while (!ending) {
    try {
      await complete(receiver, await receiver.receiveMessages(10, { maxWaitTimeInMs: 1000 }));
    } catch (error) {
      complain(`receive: ${error}`);
      await pause();
      leave(client);
      ({ client, receiver } = start());
    }
  }
}

// receiveSessions receives one message at a time. The SDK returns what comes when nobody waits any
// more, and it may come back behind a later message then.
async function receiveSessions() {
  let client = connect();
  while (!ending) {
    let receiver;
    try {
      receiver = await client.acceptNextSession("ordered");
      for (let i = 0; i < 15; i++) {
        const got = await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 });
        if (got.length === 0 || !(await complete(receiver, got))) break;
      }
    } catch (error) {
      complain(`session: ${error}`);
      await pause();
      leave(client);
      client = connect();
      continue;
    }
    await receiver.close().catch(() => {});
  }
}

process.on("unhandledRejection", (error) => complain(`unhandled: ${error}`));
process.stdin.resume();
process.stdin.on("end", async () => {
  ending = true;
  while (completing > 0) await pause();
  process.exit(0);
});
send("plain", Number(plainMessages), () => undefined);
send("ordered", Number(sessionMessages), (i) => `s${i % Number(sessions)}`);
receivePlain();
receiveSessions();
