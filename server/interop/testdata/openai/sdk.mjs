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
