// What OpenAI's SDK for JavaScript does with Forebay: node program.js http://localhost:8080 [key]
import OpenAI, { toFile } from 'openai'

const [base, apiKey = 'any'] = process.argv.slice(2)
const client = new OpenAI({ baseURL: base + '/v1', apiKey }) // the one line that changes
const ask = (content) => ({ model: 'chat', messages: [{ role: 'user', content }] })
const pause = () => new Promise((resolve) => setTimeout(resolve, 200))

// A call waits for quota instead of failing with 429.
const done = await client.chat.completions.create(ask('What is a forebay?'))
console.log('chat:', done.choices[0].message.content)

let text = ''
for await (const chunk of await client.chat.completions.create({ ...ask('And a weir?'), stream: true })) {
  text += chunk.choices[0].delta.content ?? ''
}
console.log('stream:', text)

// A response in the background survives restarts of the server and of this program.
let response = await client.responses.create({ model: 'chat', input: 'Write a report on rivers.', background: true })
while (['queued', 'in_progress'].includes(response.status)) {
  await pause()
  response = await client.responses.retrieve(response.id)
}
console.log('response:', response.status, response.output_text)

// A batch uses the quota that nobody else wants.
const lines = [0, 1, 2].map((i) =>
  JSON.stringify({ custom_id: `line-${i}`, method: 'POST', url: '/v1/chat/completions', body: ask(`Describe river ${i}.`) }) + '\n')
const file = await client.files.create({ file: await toFile(Buffer.from(lines.join('')), 'lines.jsonl'), purpose: 'batch' })
let batch = await client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' })
while (!['completed', 'failed', 'expired', 'cancelled'].includes(batch.status)) {
  await pause()
  batch = await client.batches.retrieve(batch.id)
}
console.log('batch:', batch.status, batch.request_counts.completed, 'of', batch.request_counts.total)
for (const line of (await (await client.files.content(batch.output_file_id)).text()).trim().split('\n')) {
  console.log('  ', JSON.parse(line).custom_id)
}
