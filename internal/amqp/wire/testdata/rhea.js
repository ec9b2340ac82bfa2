// Writes rhea.txt with what rhea 3.0.5 encodes, and checks that rhea decodes ours.txt.
// npm install rhea@3.0.5 && node rhea.js
'use strict';
const assert = require('assert'), fs = require('fs'), path = require('path');
const types = require('rhea/lib/types.js'), frames = require('rhea/lib/frames.js'), message = require('rhea/lib/message.js');
const terminus = require('rhea/lib/terminus.js');
const { filter } = require('rhea');

const uuid = Buffer.from('f81d4fae7dec11d0a76500a0c91e6bf6', 'hex');
const out = [];
const add = (name, buffer) => out.push(name + ' ' + buffer.toString('hex'));
const value = (name, v) => { const w = new types.Writer(); w.write(v); add('value ' + name, w.toBuffer()); };

value('ulong', types.wrap_ulong(300));
value('long', types.wrap_long(-5));
value('timestamp', types.wrap_timestamp(1311704463521));
value('uuid', types.wrap_uuid(uuid));
value('char', types.wrap_char ? types.wrap_char(0x20ac) : types.wrap_string('no char'));
value('symbols', types.wrap_array(['a', 'b'], 0xa3));
value('longs', types.wrap_array([1, -1], 0x81));
value('list', types.wrap_list([types.wrap_int(1), 'a', null, true]));
value('map', types.wrap_map({ a: types.wrap_float(0.25), b: [1.5] }));
value('described', types.wrap_described('sess', 'com.example:filter'));

add('message', message.encode({
  durable: true, priority: 7, ttl: 60000, delivery_count: 3,
  delivery_annotations: { 'x-opt-lock-token': types.wrap_uuid(uuid) },
  message_annotations: { 'x-opt-sequence-number': types.wrap_long(Math.pow(2, 40)) },
  message_id: 'id', user_id: 'user', to: 'to', subject: '', reply_to: 'reply', correlation_id: types.wrap_ulong(9),
  content_type: 'text/plain', content_encoding: 'gzip', absolute_expiry_time: 1311704463521, creation_time: 1311704464521,
  group_id: 'group', group_sequence: 4, reply_to_group_id: 'other',
  application_properties: { span: types.wrap_float(1.5) },
  body: message.data_sections([Buffer.from('first'), Buffer.from('second')]),
}));
const performative = (name, p, payload) => add('frame ' + name, frames.write_frame(frames.amqp_frame(3, p, payload)));
performative('open', frames.open({ container_id: 'client', hostname: 'host', max_frame_size: 65536, channel_max: 100, idle_time_out: 60000, properties: { product: 'p' } }));
performative('begin', frames.begin({ next_outgoing_id: 0, incoming_window: 2048, outgoing_window: 4294967295 }));
const source = terminus.source({ address: 'queue', filter: filter.selector('a = 1') });
performative('attach', frames.attach({ name: 'link', handle: 1, role: true, rcv_settle_mode: 1, source: source.described(), target: terminus.target({}).described() }));
performative('flow', frames.flow({ next_incoming_id: 1, incoming_window: 2048, next_outgoing_id: 0, outgoing_window: 2048, handle: 1, delivery_count: 0, link_credit: 10, drain: true }));
performative('transfer', frames.transfer({ handle: 0, delivery_id: 5, delivery_tag: Buffer.from('t'), message_format: 0, settled: false, more: false }), Buffer.from('payload'));
performative('disposition', frames.disposition({ role: true, first: 5, last: 6, settled: true, state: message.modified({ delivery_failed: true, message_annotations: { a: 'b' } }).described() }));
performative('rejected', frames.disposition({ role: true, first: 5, settled: true, state: message.rejected({ error: { condition: 'amqp:not-found', description: 'why' } }).described() }));
performative('detach', frames.detach({ handle: 1, closed: true, error: { condition: 'amqp:not-found', description: 'why' } }));
performative('end', frames.end({}));
performative('close', frames.close({}));
fs.writeFileSync(path.join(__dirname, 'rhea.txt'), out.join('\n') + '\n');

let checked = 0;
for (const line of fs.readFileSync(path.join(__dirname, 'ours.txt'), 'utf8').trim().split('\n')) {
  const [name, hex] = line.split(' ');
  const buffer = Buffer.from(hex, 'hex');
  if (name === 'message') {
    const m = message.decode(buffer);
    assert.deepStrictEqual([m.message_id, m.correlation_id, m.subject, m.group_id, m.group_sequence, m.ttl, m.delivery_count],
      ['id', 9, '', 'group', 4, 60000, 3]);
    assert.strictEqual(m.message_annotations['x-opt-sequence-number'], Math.pow(2, 40));
    assert.deepStrictEqual(Buffer.from(m.delivery_annotations['x-opt-lock-token']), uuid);
    assert.strictEqual(Buffer.concat(m.body.content.map ? m.body.content : [m.body.content]).toString().slice(0, 11), 'firstsecond');
    checked++;
    continue;
  }
  const frame = frames.read_frame(buffer);
  const p = frame.performative;
  const want = {
    open: () => assert.deepStrictEqual([p.container_id, p.hostname, p.max_frame_size, p.idle_time_out], ['client', 'host', 65536, 60000]),
    begin: () => assert.deepStrictEqual([p.remote_channel, p.incoming_window, p.handle_max], [3, 5000, 255]),
    attach: () => assert.deepStrictEqual([p.name, p.handle, p.role, p.source.value[0].value ?? p.source.value[0], p.initial_delivery_count], ['link', 1, false, 'queue', 0]),
    flow: () => assert.deepStrictEqual([p.next_incoming_id, p.handle, p.link_credit, p.drain], [1, 1, 10, true]),
    transfer: () => assert.deepStrictEqual([p.delivery_id, p.delivery_tag.toString('hex'), frame.payload.toString()], [5, uuid.toString('hex'), 'payload']),
    accepted: () => assert.deepStrictEqual([p.role, p.first, p.last, p.settled, p.state.descriptor.value ?? p.state.descriptor], [true, 5, 6, true, 0x24]),
    detach: () => assert.deepStrictEqual([p.handle, p.closed, p.error.condition, p.error.description], [1, true, 'amqp:not-found', 'why']),
    close: () => assert.strictEqual(p.error, null),
  }[name];
  want();
  checked++;
}
console.log('rhea decodes all ' + checked + ' of ours.txt');
