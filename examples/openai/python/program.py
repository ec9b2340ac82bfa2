"""What OpenAI's SDK for Python does with Forebay: python program.py http://localhost:8080 [key]"""
import json
import sys
import time

from openai import OpenAI

base, key = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "any"
client = OpenAI(base_url=base + "/v1", api_key=key)  # the one line that changes

# A call waits for quota instead of failing with 429.
done = client.chat.completions.create(model="chat", messages=[{"role": "user", "content": "What is a forebay?"}])
print("chat:", done.choices[0].message.content)

stream = client.chat.completions.create(model="chat", messages=[{"role": "user", "content": "And a weir?"}], stream=True)
print("stream:", "".join(chunk.choices[0].delta.content or "" for chunk in stream))

# A response in the background survives restarts of the server and of this program.
response = client.responses.create(model="chat", input="Write a report on rivers.", background=True)
while response.status in ("queued", "in_progress"):
    time.sleep(0.2)
    response = client.responses.retrieve(response.id)
print("response:", response.status, response.output_text)

# A batch uses the quota that nobody else wants.
lines = "".join(
    json.dumps({"custom_id": f"line-{i}", "method": "POST", "url": "/v1/chat/completions",
                "body": {"model": "chat", "messages": [{"role": "user", "content": f"Describe river {i}."}]}}) + "\n"
    for i in range(3))
file = client.files.create(file=("lines.jsonl", lines.encode()), purpose="batch")
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
while batch.status not in ("completed", "failed", "expired", "cancelled"):
    time.sleep(0.2)
    batch = client.batches.retrieve(batch.id)
print("batch:", batch.status, batch.request_counts.completed, "of", batch.request_counts.total)
for line in client.files.content(batch.output_file_id).text.splitlines():
    print("  ", json.loads(line)["custom_id"])
