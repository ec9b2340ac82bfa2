// What a program does with the helpers of OpenAI's SDK for JavaScript, and when calls do not
// succeed at once. Each check prints its name once it holds.
import assert from 'node:assert/strict'
import OpenAI, { AzureOpenAI } from 'openai'
import { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } from 'openai/helpers/zod'
import { ResponsesToolRunner, runnerFunction } from 'openai/helpers/responses-tool-runner'
import { z } from 'zod'

const { BASE_URL, SERVER_URL, API_KEY, ADMIN_KEY, SPENT_KEY } = process.env
const client = new OpenAI({ baseURL: BASE_URL + '/v1', apiKey: API_KEY, maxRetries: 0 })
const operator = new OpenAI({ baseURL: SERVER_URL + '/v1', apiKey: ADMIN_KEY }) // for what is not OpenAI's
const greeting = 'Hi there, what can I do for you today?'
const say = (content) => ({ model: 'chat', messages: [{ role: 'user', content }] })
const Person = z.object({ name: z.string(), age: z.number().int() })
const ada = { name: 'Ada', age: 36 }
const later = (ms) => new Promise((wake) => setTimeout(wake, ms))

// weather is a tool that counts its calls.
function weather() {
  const cities = []
  return { cities, name: 'get_weather', parameters: z.object({ city: z.string() }), function: ({ city }) => { cities.push(city); return 'rain in ' + city } }
}

// paused runs f while no call reaches the model.
async function paused(f) {
  await operator.post('/deployments/mock/pause')
  try {
    return await f()
  } finally {
    await operator.post('/deployments/mock/resume')
  }
}

const newest = async () => (await operator.get('/jobs', { query: { queue: 'calls', limit: 1 } })).items[0]

// called waits for the job of a call, and returns its id.
async function called(before) {
  for (;;) {
    const job = await newest()
    if (job.id !== before.id) return job.id
    await later(20)
  }
}

// ends returns how the job of the call ends that f makes.
async function ends(f) {
  const before = await newest()
  await f(before)
  const id = await called(before)
  for (;;) {
    const { status } = await operator.get('/jobs/' + id)
    if (['succeeded', 'failed', 'cancelled', 'expired'].includes(status)) return status
    await later(20)
  }
}

// counted is a client that counts its requests.
function counted(options) {
  const seen = []
  const c = new OpenAI({ baseURL: BASE_URL + '/v1', apiKey: API_KEY, ...options, fetch: (url, init) => { seen.push(new Headers(init.headers)); return fetch(url, init) } })
  return [c, seen]
}

const checks = {
  async parse() {
    const done = await client.chat.completions.parse({ ...say('person'), response_format: zodResponseFormat(Person, 'person') })
    assert.deepEqual(done.choices[0].message.parsed, ada)
    const stream = client.chat.completions.stream({ ...say('person'), response_format: zodResponseFormat(Person, 'person') })
    let parsed
    stream.on('content.done', (e) => (parsed = e.parsed))
    assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, ada)
    assert.deepEqual(parsed, ada)
    const response = await client.responses.parse({ model: 'chat', input: 'person', text: { format: zodTextFormat(Person, 'person') } })
    assert.deepEqual(response.output_parsed, ada)
    const events = client.responses.stream({ model: 'chat', input: 'person', text: { format: zodTextFormat(Person, 'person') } })
    assert.deepEqual((await events.finalResponse()).output_parsed, ada)
  },
  async runTools() {
    for (const stream of [false, true]) {
      const w = weather()
      const runner = client.chat.completions.runTools({ ...say('umbrella'), stream, tools: [zodFunction(w)] })
      assert.equal(await runner.finalContent(), 'Take one.')
      assert.deepEqual(w.cities, ['Oslo'])
      assert.deepEqual(runner.messages.map((m) => m.role), ['user', 'assistant', 'tool', 'assistant'])
      assert.ok((await runner.totalUsage()).total_tokens > 0 || stream)
    }
  },
  async runResponseTools() {
    for (const options of [{}, { stream: true }, { stream: true, eager: true }]) {
      const w = weather()
      const runner = new ResponsesToolRunner({ functions: [runnerFunction(zodResponsesFunction(w))] })
      const events = []
      const done = await runner.run(client, { model: 'chat', input: 'umbrella' }, { ...options, onEvent: (e) => void events.push(e.type) })
      assert.equal(done.output_text ?? done.output.at(-1).content[0].text, 'Take one.')
      assert.deepEqual(w.cities, ['Oslo'])
      assert.equal(events.filter((type) => type === 'response.completed').length, options.stream ? 2 : 0)
    }
  },
  async raw() {
    const response = await client.chat.completions.create(say('hello')).asResponse()
    assert.match(response.headers.get('content-type'), /^application\/json/)
    assert.equal((await response.json()).choices[0].message.content, greeting)
    const { data, request_id } = await client.responses.create({ model: 'chat', input: 'hello', stream: true }).withResponse()
    assert.ok(request_id)
    const [left, right] = data.tee()
    const types = async (stream) => { const all = []; for await (const e of stream) all.push(e.type); return all }
    const [a, b] = await Promise.all([types(left), types(right)])
    assert.deepEqual(a, b)
    assert.equal(a.at(-1), 'response.completed')
  },
  async conversation() {
    let input = [{ role: 'user', content: 'weather' }]
    const tools = [zodResponsesFunction(weather())]
    const first = await client.responses.create({ model: 'chat', input, tools, store: false, include: ['reasoning.encrypted_content'] })
    const call = first.output.find((item) => item.type === 'function_call')
    input = [...input, ...first.output, { type: 'function_call_output', call_id: call.call_id, output: [{ type: 'input_text', text: 'rain' }] }, { role: 'user', content: 'hello' }]
    assert.equal((await client.responses.create({ model: 'chat', input, tools, store: false })).output_text, greeting)
  },
  async spent() {
    const [poor, seen] = counted({ apiKey: SPENT_KEY, maxRetries: 3 })
    const began = Date.now()
    await assert.rejects(poor.chat.completions.create(say('hello')), (e) =>
      e instanceof OpenAI.RateLimitError && e.status === 429 && e.code === 'insufficient_quota' && e.type && e.message.length > 4 && !!e.requestID)
    await assert.rejects(poor.responses.create({ model: 'chat', input: 'hello' }), (e) => e instanceof OpenAI.RateLimitError && e.code === 'insufficient_quota')
    assert.equal(seen.length, 2, 'it was tried again')
    assert.ok(Date.now() - began < 25_000, 'a call waits a minute for quota, but not for a spent budget')
  },
  async waiting() {
    const status = await paused(() => ends(() =>
      assert.rejects(client.chat.completions.create(say('hello'), { headers: { 'X-Stainless-Timeout': '2' } }), (e) =>
        e instanceof OpenAI.APIError && [429, 503].includes(e.status) && Number(e.headers.get('retry-after')) > 0 && Number(e.headers.get('retry-after-ms')) > 0)))
    assert.equal(status, 'cancelled')
  },
  async retrying() {
    const [patient, seen] = counted({ maxRetries: 20, timeout: 10000 })
    let done
    await paused(async () => {
      done = patient.chat.completions.create(say('hello'), { headers: { 'X-Stainless-Timeout': '1' } })
      while (seen.length < 2) await later(20)
    })
    assert.equal((await done).choices[0].message.content, greeting)
    assert.equal(seen[1].get('x-stainless-retry-count'), '1')
  },
  async timeout() {
    const options = { timeout: 3000, headers: { 'X-Stainless-Timeout': '100' } } // the server would wait longer
    const status = await paused(() => ends(() =>
      assert.rejects(client.chat.completions.create(say('hello'), options), (e) => e instanceof OpenAI.APIConnectionTimeoutError)))
    assert.equal(status, 'cancelled')
  },
  async abort() {
    for (const make of [(o) => client.chat.completions.create(say('hello'), o), (o) => client.responses.create({ model: 'chat', input: 'hello', stream: true }, o)]) {
      const status = await paused(() => ends(async (before) => {
        const controller = new AbortController()
        const refused = assert.rejects(make({ signal: controller.signal }), (e) => e instanceof OpenAI.APIUserAbortError)
        await called(before)
        controller.abort()
        await refused
      }))
      assert.equal(status, 'cancelled')
    }
    const left = await ends(async () => {
      for await (const _ of await client.chat.completions.create({ ...say('long'), stream: true })) break
    })
    assert.notEqual(left, 'succeeded')
  },
  async cancel() {
    await paused(async () => {
      const r = await client.responses.create({ model: 'chat', input: 'hello', background: true })
      const follower = client.responses.retrieve(r.id, { stream: true })
      assert.equal((await client.responses.cancel(r.id)).status, 'cancelled')
      const events = []
      for await (const e of await follower) events.push(e)
      assert.equal((await client.responses.retrieve(r.id)).status, 'cancelled')
      const rest = []
      for await (const e of await client.responses.retrieve(r.id, { stream: true, starting_after: 0 })) rest.push(e)
      assert.deepEqual(rest, events.slice(1))
    })
  },
  async idempotent() {
    const make = () => client.responses.create({ model: 'chat', input: 'hello', background: true }, { headers: { 'Idempotency-Key': 'once' } }) // the SDK does not send its option idempotencyKey
    assert.equal((await make()).id, (await make()).id)
  },
  async notServed() {
    const absent = (e) => e instanceof OpenAI.APIError && [404, 405].includes(e.status) && e.error.message.length > 0
    await assert.rejects(client.conversations.create({}), absent)
    await assert.rejects(client.responses.inputTokens.count({ model: 'chat', input: 'hello' }), absent)
    await assert.rejects(client.images.generate({ model: 'chat', prompt: 'hello' }), absent)
    await assert.rejects(client.vectorStores.list(), absent)
    await assert.rejects(client.fineTuning.jobs.list(), absent)
    await assert.rejects(client.chat.completions.list(), absent)
  },
  async azure() {
    const azure = new AzureOpenAI({ endpoint: BASE_URL + '/', azureADTokenProvider: async () => API_KEY, apiVersion: '2024-10-21', deployment: 'chat', maxRetries: 0 })
    let text = ''
    for await (const chunk of await azure.chat.completions.create({ messages: say('hello').messages, model: '', stream: true })) text += chunk.choices[0]?.delta?.content ?? ''
    assert.equal(text, greeting)
    const w = weather()
    assert.equal(await azure.chat.completions.runTools({ ...say('umbrella'), tools: [zodFunction(w)] }).finalContent(), 'Take one.')
    const stranger = new AzureOpenAI({ endpoint: BASE_URL, azureADTokenProvider: async () => 'sk-wrong', apiVersion: '2024-10-21', maxRetries: 0 })
    await assert.rejects(stranger.models.list(), (e) => e instanceof OpenAI.AuthenticationError)
    const named = client.withOptions({ organization: 'org', project: 'proj', defaultHeaders: { 'X-Own': 'a' } })
    assert.equal((await named.models.list()).data.length, 2)
    assert.equal((await new OpenAI({ baseURL: BASE_URL + '/v1/', apiKey: async () => API_KEY }).models.list()).data.length, 2)
  },
}

for (const [name, check] of Object.entries(checks)) {
  await check()
  console.log('ok', name)
}
