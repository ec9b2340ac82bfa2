// Sends and receives through the server at the port given, and fails at the first surprise.
const assert = require('node:assert');
const rhea = require('rhea');

const once = (emitter, name) => new Promise((resolve, reject) => {
    emitter.once(name, resolve);
    for (const failure of ['disconnected', 'connection_error', 'session_error']) {
        emitter.once(failure, (context) => reject(new Error(failure + ': ' + (context.error || context.connection && context.connection.error))));
    }
});

async function main(port) {
    const container = rhea.create_container();
    const connection = container.connect({
        port, host: '127.0.0.1', username: 'me', password: 'secret', reconnect: false, idle_time_out: 2000, max_frame_size: 4096,
    });
    await once(connection, 'connection_open');

    // Sent in one go, settled in ranges.
    const count = 3000;
    const sender = connection.open_sender('q');
    let accepted = 0, sent = 0;
    const allAccepted = new Promise((resolve) => sender.on('accepted', () => { if (++accepted === count) resolve(); }));
    const more = () => {
        while (sender.sendable() && sent < count) {
            sender.send({ message_id: sent, body: sent % 100 === 0 ? 'x'.repeat(20000) + sent : 'message ' + sent });
            sent++;
        }
    };
    sender.on('sendable', more);
    await allAccepted;

    // Received with credit of its own, settled in every way, in order. One at a time while the
    // ways differ: this client tells two in a row as one range of the first one's state.
    const receiver = connection.open_receiver({ source: 'q', credit_window: 0, autoaccept: false, rcv_settle_mode: 1 });
    await once(receiver, 'receiver_open');
    let got = 0, settled = 0;
    const allSettled = new Promise((resolve) => receiver.on('settled', () => { if (++settled === count) resolve(); }));
    receiver.on('message', (context) => {
        const n = got++;
        const want = n % 100 === 0 ? 'x'.repeat(20000) + n : 'message ' + n;
        assert.strictEqual(context.message.body, want);
        assert.strictEqual(context.message.message_id, n);
        [
            () => context.delivery.accept(),
            () => context.delivery.release(),
            () => context.delivery.reject({ condition: 'test:bad', description: 'it is bad' }),
            () => context.delivery.modified({ delivery_failed: true, undeliverable_here: true }),
        ][n < 400 ? n % 4 : 0]();
        if (got < 400) receiver.add_credit(1);
        else if (got % 100 === 0) receiver.add_credit(100);
    });
    receiver.add_credit(1);
    await allSettled;
    assert.strictEqual(got, count);

    // Drained: what is there comes, the rest of the credit is given up.
    receiver.drain = true;
    receiver.add_credit(50);
    await once(receiver, 'receiver_drained');
    assert.strictEqual(receiver.credit, 0);

    // A link that is refused says why, and has no terminus.
    const refused = connection.open_receiver('none');
    const context = await once(refused, 'receiver_error');
    assert.strictEqual(context.receiver.error.condition, 'amqp:not-found');

    // An idle connection lives on heartbeats of both sides, beyond both time-outs.
    await new Promise((resolve) => setTimeout(resolve, 3000));
    assert.ok(connection.is_open());

    const closed = once(connection, 'connection_close');
    connection.close();
    await closed;
    console.log('done');
}

main(Number(process.argv[2])).catch((err) => { console.error(err); process.exit(1); });
