// What a program does with responses of OpenAI's SDK for JavaScript. Each check prints its name
// once it holds.
import assert from 'node:assert/strict'
import OpenAI, { AzureOpenAI } from 'openai'
import { ResponsesWS } from 'openai/resources/responses/ws'

const { BASE_URL, SERVER_URL, API_KEY } = process.env
const client = new OpenAI({ baseURL: BASE_URL + '/v1', apiKey: API_KEY, maxRetries: 0 })
const greeting = 'Hi there, what can I do for you today?'
const weather = { type: 'function', name: 'get_weather', strict: false, parameters: { type: 'object', properties: { city: { type: 'string' } } } }

async function finished(id) {
  for (;;) {
    const r = await client.responses.retrieve(id)
    if (r.status !== 'queued' && r.status !== 'in_progress') return r
    await new Promise((wake) => setTimeout(wake, 20))
  }
}

async function collect(stream) {
  const events = []
  for await (const event of stream) events.push(event)
  events.forEach((e, i) => assert.equal(e.sequence_number, events[0].sequence_number + i))
  return events
}

const checks = {
  async create() {
    const r = await client.responses.create({ model: 'chat', input: 'hello', instructions: 'Be kind.', metadata: { a: 'b' } })
    assert.equal(r.output_text, greeting)
    assert.deepEqual([r.object, r.status, r.metadata.a, r.error], ['response', 'completed', 'b', null])
    assert.ok(r.usage.total_tokens > 0 && r._request_id)
    assert.deepEqual((await client.responses.retrieve(r.id)).output, r.output)
  },
  async streaming() {
    const events = await collect(await client.responses.create({ model: 'chat', input: 'hello', stream: true }))
    assert.equal(events[0].type, 'response.created')
    assert.equal(events.at(-1).type, 'response.completed')
    assert.equal(events.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join(''), greeting)
  },
  async helper() {
    let deltas = ''
    const stream = client.responses.stream({ model: 'chat', input: 'hello' })
    stream.on('response.output_text.delta', (e) => (deltas += e.delta))
    assert.equal((await stream.finalResponse()).output_text, greeting)
    assert.equal(deltas, greeting)
  },
  async tools() {
    const first = await client.responses.create({ model: 'chat', input: 'weather', tools: [weather], tool_choice: 'auto' })
    const call = first.output.find((item) => item.type === 'function_call')
    assert.deepEqual([call.name, JSON.parse(call.arguments)], ['get_weather', { city: 'Oslo' }])
    const second = await client.responses.create({
      model: 'chat', previous_response_id: first.id, tools: [weather],
      input: [{ type: 'function_call_output', call_id: call.call_id, output: 'rain' }, { role: 'user', content: 'hello' }],
    })
    assert.equal(second.output_text, greeting)
    const stream = client.responses.stream({ model: 'chat', input: 'weather', tools: [weather] })
    const final = await stream.finalResponse()
    assert.equal(final.output.find((item) => item.type === 'function_call').arguments, '{"city":"Oslo"}')
  },
  async structured() {
    const schema = { type: 'object', properties: { name: { type: 'string' }, age: { type: 'integer' } }, required: ['name', 'age'], additionalProperties: false }
    const r = await client.responses.parse({ model: 'chat', input: 'person', text: { format: { type: 'json_schema', name: 'person', schema, strict: true } } })
    assert.deepEqual(r.output_parsed, { name: 'Ada', age: 36 })
  },
  async vision() {
    const r = await client.responses.create({
      model: 'chat',
      input: [{ role: 'user', content: [{ type: 'input_text', text: 'image' }, { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,iVBORw0KGgo=' }] }],
    })
    assert.equal(r.output_text, 'A red square.')
  },
  async background() {
    const r = await client.responses.create({ model: 'chat', input: 'hello', background: true })
    assert.equal(r.status, 'queued')
    const done = await finished(r.id)
    assert.deepEqual([done.status, done.output_text], ['completed', greeting])
    const all = await collect(await client.responses.retrieve(r.id, { stream: true }))
    const rest = await collect(await client.responses.retrieve(r.id, { stream: true, starting_after: 4 }))
    assert.deepEqual(rest, all.slice(5))
    const stream = client.responses.stream({ response_id: r.id, starting_after: 2 })
    assert.equal((await stream.finalResponse()).output_text, greeting)
    assert.deepEqual((await client.responses.cancel(r.id)).status, 'completed')
  },
  async backgroundStream() {
    const stream = await client.responses.create({ model: 'chat', input: 'hello', background: true, stream: true })
    let id, last
    for await (const event of stream) {
      id ??= event.response.id
      last = event.sequence_number
      if (last === 2) break // the client leaves, and the response goes on
    }
    const rest = await collect(await client.responses.retrieve(id, { stream: true, starting_after: last }))
    assert.equal(rest[0].sequence_number, 3)
    assert.equal(rest.at(-1).type, 'response.completed')
  },
  async failing() {
    const r = await client.responses.create({ model: 'chat', input: 'forbidden', background: true })
    const done = await finished(r.id)
    assert.deepEqual([done.status, done.error.code], ['failed', 'invalid_prompt'])
    await assert.rejects(client.responses.create({ model: 'chat', input: 'forbidden' }), (e) => e instanceof OpenAI.BadRequestError && e.code === 'content_policy_violation')
  },
  async items() {
    const input = ['hello', 'a', 'b', 'c'].map((content) => ({ role: 'user', content }))
    const r = await client.responses.create({ model: 'chat', input: input.reverse() })
    const texts = []
    for await (const item of client.responses.inputItems.list(r.id, { limit: 3, order: 'asc' })) texts.push(item.content[0].text)
    assert.deepEqual(texts, ['c', 'b', 'a', 'hello'])
  },
  async deleting() {
    const r = await client.responses.create({ model: 'chat', input: 'hello' })
    await client.responses.delete(r.id)
    await assert.rejects(client.responses.retrieve(r.id), (e) => e instanceof OpenAI.NotFoundError)
    await assert.rejects(client.responses.create({ model: 'chat', input: 'hello', previous_response_id: r.id }), (e) =>
      e instanceof OpenAI.BadRequestError && e.code === 'previous_response_not_found' && e.param === 'previous_response_id')
  },
  async refusals() {
    await assert.rejects(client.responses.create({ model: 'chat', input: 'hello', tools: [{ type: 'web_search' }] }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === 'tools[0].type')
    const r = await client.responses.create({ model: 'chat', input: 'hello' })
    await assert.rejects(client.responses.cancel(r.id), (e) => e instanceof OpenAI.BadRequestError && e.message.includes('synchronous'))
  },
  async compact() {
    const first = await client.responses.create({ model: 'chat', input: 'hello' })
    const c = await client.responses.compact({ model: 'chat', previous_response_id: first.id, input: 'hello again' })
    assert.deepEqual([c.object, c.output.map((item) => item.type)], ['response.compaction', ['message', 'message', 'compaction']])
    assert.ok(c.usage.total_tokens > 0 && c.created_at > 0 && c.id)
    const next = await client.responses.create({ model: 'chat', input: [...c.output, { role: 'user', content: 'hello' }] })
    assert.equal(next.output_text, greeting)
    const item = { ...c.output[2], encrypted_content: c.output[2].encrypted_content.slice(0, -4) }
    await assert.rejects(client.responses.create({ model: 'chat', input: [item] }), (e) => e instanceof OpenAI.BadRequestError && e.code === 'invalid_encrypted_content')
    await assert.rejects(client.responses.compact({ input: 'hello' }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'model')
  },
  async socket() {
    const ws = new ResponsesWS(new OpenAI({ baseURL: SERVER_URL + '/v1', apiKey: API_KEY }))
    const records = ws.stream()
    const turn = async (request) => {
      ws.send({ type: 'response.create', model: 'chat', ...request })
      for (const events = []; ;) {
        const { value, done } = await records.next()
        assert.ok(!done)
        if (value.type === 'error') return [value.error.error]
        if (value.type !== 'message') continue
        events.push(value.message)
        if (['response.completed', 'response.incomplete', 'response.failed'].includes(value.message.type)) return events
      }
    }
    const first = await turn({ input: 'hello', store: false })
    first.forEach((e, i) => assert.equal(e.sequence_number, i))
    assert.equal(first.filter((e) => e.type === 'response.output_text.delta').map((e) => e.delta).join(''), greeting)
    const [before] = [first.at(-1).response.id]
    const second = await turn({ input: 'hello', store: false, previous_response_id: before, stream_id: 'agent_1' })
    assert.equal(second.at(-1).response.previous_response_id, before)
    assert.ok(second.every((e) => e.stream_id === 'agent_1'))
    const [lost] = await turn({ input: 'hello', previous_response_id: before })
    assert.deepEqual([lost.type, lost.status, lost.error.code, lost.error.param], ['error', 400, 'previous_response_not_found', 'previous_response_id'])
    const [refused] = await turn({ input: 'hello', tools: [{ type: 'web_search' }] })
    assert.deepEqual([refused.error.type, refused.error.param], ['invalid_request_error', 'tools[0].type'])
    const stored = (await turn({ input: 'hello' })).at(-1).response
    assert.equal((await client.responses.retrieve(stored.id)).output_text, greeting)
    ws.close()
    await assert.rejects(client.responses.retrieve(before), (e) => e instanceof OpenAI.NotFoundError)
    const stranger = new ResponsesWS(new OpenAI({ baseURL: SERVER_URL + '/v1', apiKey: 'sk-wrong' }), { reconnect: null })
    await new Promise((refused) => stranger.on('error', refused))
  },
  async azure() {
    const azure = new AzureOpenAI({ endpoint: BASE_URL, apiKey: API_KEY, apiVersion: 'preview', maxRetries: 0 })
    const r = await azure.responses.create({ model: 'chat', input: 'hello' })
    assert.equal((await azure.responses.retrieve(r.id)).output_text, greeting)
  },
}

for (const [name, check] of Object.entries(checks)) {
  await check()
  console.log('ok', name)
}
