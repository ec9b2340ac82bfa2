// What a program does with OpenAI's SDK for JavaScript. Each check prints its name once it holds.
import assert from 'node:assert/strict'
import { createReadStream, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI, { AzureOpenAI, toFile } from 'openai'

const { BASE_URL, API_KEY } = process.env
const client = new OpenAI({ baseURL: BASE_URL + '/v1', apiKey: API_KEY, maxRetries: 0 })
const say = (content) => [{ role: 'user', content }]
const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }
const weather = {
  type: 'function',
  function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
}

const checks = {
  async models() {
    const ids = (await client.models.list()).data.map((m) => m.id)
    assert.deepEqual(ids, ['chat', 'embedding'])
    assert.equal((await client.models.retrieve('chat')).id, 'chat')
    await assert.rejects(client.models.retrieve('a/b'), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found')
  },
  async chat() {
    const { data, response } = await client.chat.completions.create({ model: 'chat', messages: say('hello'), seed: 7 }).withResponse()
    assert.equal(data.choices[0].message.content, 'Hi there, what can I do for you today?')
    assert.ok(data._request_id && response.headers.get('x-request-id') === data._request_id)
    assert.ok(data.usage.total_tokens > 0)
  },
  async stream() {
    let text = ''
    let usage = 0
    for await (const chunk of await client.chat.completions.create({ model: 'chat', messages: say('hello'), stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? ''
      if (chunk.usage) usage++
      assert.ok(chunk.choices.length > 0, 'a chunk that nobody asked for')
    }
    assert.equal(text, 'Hi there, what can I do for you today?')
    assert.equal(usage, 0)
  },
  async usageOfStream() {
    let usage
    const stream = await client.chat.completions.create({
      model: 'chat', messages: say('hello'), stream: true, stream_options: { include_usage: true },
    })
    for await (const chunk of stream) usage = chunk.usage ?? usage
    assert.ok(usage.total_tokens > 0)
  },
  async helperOfStream() {
    const stream = client.chat.completions.stream({ model: 'chat', messages: say('hello') })
    assert.equal(await stream.finalContent(), 'Hi there, what can I do for you today?')
  },
  async tools() {
    const done = await client.chat.completions.create({ model: 'chat', messages: say('weather'), tools: [weather] })
    assert.equal(done.choices[0].finish_reason, 'tool_calls')
    assert.equal(done.choices[0].message.tool_calls[0].function.arguments, '{"city":"Oslo"}')
    const stream = client.chat.completions.stream({ model: 'chat', messages: say('weather'), tools: [weather] })
    const final = await stream.finalChatCompletion()
    assert.equal(final.choices[0].message.tool_calls[0].function.name, 'get_weather')
  },
  async structured() {
    const done = await client.chat.completions.create({
      model: 'chat', messages: say('person'),
      response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: { type: 'object', properties: {} } } },
    })
    assert.deepEqual(JSON.parse(done.choices[0].message.content), { name: 'Ada', age: 36 })
  },
  async vision() {
    const done = await client.chat.completions.create({ model: 'chat', messages: say([{ type: 'text', text: 'image' }, image]) })
    assert.equal(done.choices[0].message.content, 'A red square.')
  },
  async embeddings() {
    const want = [0.25, -0.5, 0.125, 1.5]
    const plain = await client.embeddings.create({ model: 'embedding', input: 'vector' }) // the SDK asks for base64
    assert.deepEqual(plain.data[0].embedding, want)
    const floats = await client.embeddings.create({ model: 'embedding', input: ['vector'], encoding_format: 'float' })
    assert.deepEqual(floats.data[0].embedding, want)
  },
  async refusal() {
    await assert.rejects(client.chat.completions.create({ model: 'chat', messages: say('forbidden') }), (e) =>
      e instanceof OpenAI.BadRequestError && e.code === 'content_policy_violation' && e.message.includes('refuses') && !!e.requestID)
  },
  async unknownModel() {
    await assert.rejects(client.chat.completions.create({ model: 'none', messages: say('hello') }), (e) =>
      e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.type === 'invalid_request_error')
  },
  async wrongKey() {
    const stranger = new OpenAI({ baseURL: BASE_URL + '/v1', apiKey: 'sk-wrong', maxRetries: 0 })
    await assert.rejects(stranger.models.list(), (e) => e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key')
  },
  async badBody() {
    await assert.rejects(client.chat.completions.create({ messages: say('hello') }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === 'model')
    await assert.rejects(client.post('/audio/nothing', { body: {} }), (e) => e.status === 404)
    await assert.rejects(client.get('/chat/completions/x/y'), (e) => e instanceof OpenAI.NotFoundError && e.error.message.length > 0)
  },
  async azure() {
    const azure = new AzureOpenAI({ endpoint: BASE_URL, apiKey: API_KEY, apiVersion: '2024-10-21', maxRetries: 0 })
    const done = await azure.chat.completions.create({ model: 'chat', messages: say('hello') })
    assert.equal(done.choices[0].message.content, 'Hi there, what can I do for you today?')
    assert.deepEqual((await azure.models.list()).data.map((m) => m.id), ['chat', 'embedding'])
    const v1 = new OpenAI({ baseURL: BASE_URL + '/openai/v1', apiKey: API_KEY, maxRetries: 0, defaultQuery: { 'api-version': 'preview' } })
    assert.equal((await v1.embeddings.create({ model: 'embedding', input: 'vector' })).data[0].embedding.length, 4)
  },
  async files() {
    const content = Buffer.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d, 0x0d, 0x0a, 0x00, 0xff])
    const path = join(mkdtempSync(join(tmpdir(), 'sdk-')), 'línes.jsonl')
    writeFileSync(path, content)
    const made = [
      await client.files.create({ file: createReadStream(path), purpose: 'batch' }), // chunked, without a length
      await client.files.create({ purpose: 'batch', file: await toFile(content, 'línes.jsonl') }),
      await client.files.create({ file: await toFile(content, 'línes.jsonl'), purpose: 'user_data', expires_after: { anchor: 'created_at', seconds: 3600 } }),
    ]
    for (const f of made) {
      assert.equal(f.filename, 'línes.jsonl')
      assert.equal(f.bytes, content.length)
      assert.deepEqual(Buffer.from(await (await client.files.content(f.id)).arrayBuffer()), content)
      assert.equal((await client.files.waitForProcessing(f.id)).status, 'processed')
    }
    assert.equal(made[2].expires_at, made[2].created_at + 3600)
    const listed = []
    for await (const f of client.files.list({ limit: 2 })) listed.push(f.id)
    assert.deepEqual(new Set(listed), new Set(made.map((f) => f.id)))
    assert.equal(listed.length, 3)
    for await (const f of client.files.list({ limit: 1, purpose: 'batch', order: 'asc' })) {
      assert.deepEqual(await client.files.delete(f.id), { id: f.id, object: 'file', deleted: true })
    }
    assert.deepEqual((await client.files.list()).data.map((f) => f.id), [made[2].id])
    await assert.rejects(client.files.content(made[0].id), (e) => e instanceof OpenAI.NotFoundError)
    await assert.rejects(client.files.create({ file: await toFile(content, 'f'), purpose: 'nonsense' }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === 'purpose')
    await client.files.delete(made[2].id)
  },
  async batches() {
    const line = (id, content, more) => JSON.stringify({
      custom_id: id, method: 'POST', url: '/v1/chat/completions', body: { model: 'chat', messages: say(content), ...more },
    })
    const input = async (lines) => (await client.files.create({ purpose: 'batch', file: await toFile(Buffer.from(lines.join('\n')), 'l.jsonl') })).id
    const make = async (lines, more) => client.batches.create({
      input_file_id: await input(lines), endpoint: '/v1/chat/completions', completion_window: '24h', ...more,
    })
    const ended = async (b) => {
      while (['validating', 'in_progress', 'finalizing', 'cancelling'].includes(b.status)) {
        await new Promise((later) => setTimeout(later, 50))
        b = await client.batches.retrieve(b.id)
      }
      return b
    }
    const linesOf = async (id) => (await (await client.files.content(id)).text()).trim().split('\n').map((l) => JSON.parse(l))

    let b = await make([line('a', 'hello'), line('b', 'forbidden'), line('c', 'hello')], { metadata: { run: '7' } })
    assert.equal(b.status, 'validating')
    assert.deepEqual(b.request_counts, { total: 0, completed: 0, failed: 0 })
    b = await ended(b)
    assert.equal(b.status, 'completed')
    assert.deepEqual(b.request_counts, { total: 3, completed: 2, failed: 1 })
    assert.equal(b.metadata.run, '7')
    assert.ok(b.usage.total_tokens > 0 && b.completed_at >= b.created_at)
    const answers = await linesOf(b.output_file_id)
    assert.deepEqual(answers.map((l) => l.custom_id), ['a', 'c'])
    assert.equal(answers[0].response.body.choices[0].message.content, 'Hi there, what can I do for you today?')
    const [refused] = await linesOf(b.error_file_id)
    assert.equal(refused.custom_id, 'b')
    assert.equal(refused.response.status_code, 400)
    assert.equal(refused.response.body.error.code, 'content_policy_violation')
    assert.equal(refused.error, null)
    await assert.rejects(client.batches.cancel(b.id), (e) => e instanceof OpenAI.ConflictError && e.headers.get('x-should-retry') === 'false')

    const invalid = await ended(await make([line('a', 'hello'), line('a', 'hello'), '{', line('b', 'hello', { stream: true })]))
    assert.equal(invalid.status, 'failed')
    assert.deepEqual(invalid.errors.data.map((e) => [e.line, e.code]), [[2, 'duplicate_custom_id'], [3, 'invalid_json_line'], [4, 'invalid_request']])

    const many = await make(Array.from({ length: 2000 }, (_, i) => line(String(i), 'hello')))
    assert.ok(['cancelling', 'cancelled'].includes((await client.batches.cancel(many.id)).status))
    assert.equal((await ended(await client.batches.cancel(many.id))).status, 'cancelled')

    const ids = []
    for await (const one of client.batches.list({ limit: 1 })) ids.push(one.id)
    assert.deepEqual(ids, [many.id, invalid.id, b.id])
    await assert.rejects(client.batches.create({ input_file_id: 'file-x', endpoint: '/v1/chat/completions', completion_window: '24h' }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === 'input_file_id')
    await assert.rejects(client.batches.retrieve('batch_x'), (e) => e instanceof OpenAI.NotFoundError)
    for await (const f of client.files.list()) await client.files.delete(f.id)
    const azure = new AzureOpenAI({ endpoint: BASE_URL, apiKey: API_KEY, apiVersion: '2024-10-21', deployment: 'chat', maxRetries: 0 })
    const azures = await azure.batches.create({ input_file_id: await input([line('a', 'hello')]), endpoint: '/chat/completions', completion_window: '24h' })
    assert.equal((await ended(azures)).status, 'completed')
  },
  async leaving() {
    const controller = new AbortController()
    const stream = await client.chat.completions.create({ model: 'chat', messages: say('hello'), stream: true }, { signal: controller.signal })
    for await (const _ of stream) break
    controller.abort()
  },
}

for (const [name, check] of Object.entries(checks)) {
  await check()
  console.log('ok', name)
}
