// Reads a webhook (its headers and body as JSON) and prints what OpenAI's SDK makes of it.
import { readFileSync } from 'node:fs'
import OpenAI from 'openai'

const { headers, body } = JSON.parse(readFileSync(0, 'utf8'))
const client = new OpenAI({ apiKey: 'any', webhookSecret: process.env.SECRET })
const event = await client.webhooks.unwrap(body, headers)
console.log(event.type, event.data.id)
try {
  await client.webhooks.unwrap(body + ' ', headers)
} catch (e) {
  if (e instanceof OpenAI.InvalidWebhookSignatureError) console.log('ok')
}
