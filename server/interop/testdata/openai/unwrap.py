"""Reads a webhook (its headers and body as JSON) and prints what OpenAI's SDK makes of it."""
import json
import os
import sys

import openai

delivery = json.load(sys.stdin)
client = openai.OpenAI(api_key="any", webhook_secret=os.environ["SECRET"])
event = client.webhooks.unwrap(delivery["body"], delivery["headers"])
print(event.type, event.data.id)
try:
    client.webhooks.unwrap(delivery["body"] + " ", delivery["headers"])
except openai.InvalidWebhookSignatureError:
    print("ok")
