// What a program does with Anthropic's SDK for JavaScript. Each check prints its name once it holds.
import assert from 'node:assert/strict'
import Anthropic from '@anthropic-ai/sdk'

const { BASE_URL, API_KEY } = process.env
const client = new Anthropic({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 })
const say = (content) => [{ role: 'user', content }]
const greeting = 'Hi there, what can I do for you today?'
const ask = (content, more = {}) => ({ model: 'claude', max_tokens: 100, messages: say(content), ...more })
const tools = [{ name: 'get_weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } }]

const checks = {
  async message() {
    const message = await client.messages.create(ask('hello', { system: 'Be kind.' }))
    assert.equal(message.content[0].text, greeting)
    assert.equal(message.stop_reason, 'end_turn')
  },
  async stream() {
    let text = ''
    for await (const event of await client.messages.create(ask('hello', { stream: true }))) {
      if (event.type === 'content_block_delta') text += event.delta.text
    }
    assert.equal(text, greeting)
  },
  async helperOfStream() {
    const stream = client.messages.stream(ask('hello'))
    assert.equal(await stream.finalText(), greeting)
  },
  async tools() {
    const message = await client.messages.create(ask('What is the weather in Oslo?', { tools }))
    assert.equal(message.stop_reason, 'tool_use')
    const use = message.content.find((block) => block.type === 'tool_use')
    assert.deepEqual(use.input, { city: 'Oslo' })
  },
  async streamedTools() {
    const message = await client.messages.stream(ask('What is the weather in Oslo?', { tools })).finalMessage()
    assert.deepEqual(message.content.find((block) => block.type === 'tool_use').input, { city: 'Oslo' })
  },
  async image() {
    const source = { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' }
    const message = await client.messages.create(ask([{ type: 'image', source }, { type: 'text', text: 'image' }]))
    assert.equal(message.content[0].text, 'A red square.')
  },
  async countTokens() {
    const prompt = { model: 'counted', messages: say('What is the weather in Oslo?'), system: 'Be kind.', tools }
    const { usage } = await client.messages.create({ ...prompt, max_tokens: 100 })
    assert.ok(usage.input_tokens > 0)
    assert.equal((await client.messages.countTokens(prompt)).input_tokens, usage.input_tokens)
    assert.equal((await client.beta.messages.countTokens({ ...prompt, betas: ['token-counting-2024-11-01'] })).input_tokens, usage.input_tokens)
    await assert.rejects(client.messages.countTokens({ ...prompt, model: 'nix' }), Anthropic.NotFoundError)
    await assert.rejects(client.messages.countTokens({ ...prompt, model: 'chat' }), Anthropic.BadRequestError)
  },
  async refused() {
    await assert.rejects(client.messages.create(ask('forbidden')), (e) => e instanceof Anthropic.BadRequestError && /refuses/.test(e.message))
  },
  async unknownModel() {
    await assert.rejects(client.messages.create({ ...ask('hello'), model: 'nix' }), (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === 'not_found_error')
  },
  async modelOfAnother() {
    await assert.rejects(client.messages.create({ ...ask('hello'), model: 'chat' }), (e) => e instanceof Anthropic.BadRequestError)
  },
  async wrongKey() {
    const stranger = new Anthropic({ baseURL: BASE_URL, apiKey: 'fb_wrong', maxRetries: 0 })
    await assert.rejects(stranger.messages.create(ask('hello')), (e) => e instanceof Anthropic.AuthenticationError && e.error.error.type === 'authentication_error')
  },
  async bearer() {
    const bearer = new Anthropic({ baseURL: BASE_URL + '/anthropic', apiKey: null, authToken: API_KEY, maxRetries: 0 })
    assert.equal((await bearer.messages.create(ask('hello'))).content[0].text, greeting)
  },
}

for (const [name, check] of Object.entries(checks)) {
  await check()
  console.log('ok ' + name)
}
