"""What a program does with OpenAI's SDK for Python. Each check prints its name once it holds."""

import asyncio
import json
import os
import time

import openai

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]
client = openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=0)
greeting = "Hi there, what can I do for you today?"
vector = [0.25, -0.5, 0.125, 1.5]


def say(content):
    return [{"role": "user", "content": content}]


def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def models():
    assert [m.id for m in client.models.list()] == ["chat", "embedding"]
    assert client.models.retrieve("chat").object == "model"
    assert raises(openai.NotFoundError, lambda: client.models.retrieve("a/b")).code == "model_not_found"


def chat():
    done = client.chat.completions.create(model="chat", messages=say("hello"), seed=7)
    assert done.choices[0].message.content == greeting
    assert done._request_id and done.usage.total_tokens > 0


def stream():
    text = ""
    for chunk in client.chat.completions.create(model="chat", messages=say("hello"), stream=True):
        assert chunk.choices and not chunk.usage, chunk
        text += chunk.choices[0].delta.content or ""
    assert text == greeting
    last = list(client.chat.completions.create(model="chat", messages=say("hello"), stream=True, stream_options={"include_usage": True}))[-1]
    assert last.usage.total_tokens > 0 and not last.choices


def tools():
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}
    with client.chat.completions.stream(model="chat", messages=say("weather"), tools=[tool]) as events:
        call = events.get_final_completion().choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})


def structured():
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    done = client.chat.completions.parse(model="chat", messages=say("person"), response_format=Person)
    assert done.choices[0].message.parsed == Person(name="Ada", age=36)


def embeddings():
    assert client.embeddings.create(model="embedding", input="vector").data[0].embedding == vector
    assert client.embeddings.create(model="embedding", input=["vector"], encoding_format="float").data[0].embedding == vector


def errors():
    refused = raises(openai.BadRequestError, lambda: client.chat.completions.create(model="chat", messages=say("forbidden")))
    assert refused.code == "content_policy_violation" and refused.request_id
    unknown = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="none", messages=say("hello")))
    assert (unknown.code, unknown.type) == ("model_not_found", "invalid_request_error")
    stranger = openai.OpenAI(base_url=base + "/v1", api_key="sk-wrong", max_retries=0)
    assert raises(openai.AuthenticationError, stranger.models.list).code == "invalid_api_key"


def azure():
    other = openai.AzureOpenAI(azure_endpoint=base, api_key=key, api_version="2024-10-21", max_retries=0)
    assert other.chat.completions.create(model="chat", messages=say("hello")).choices[0].message.content == greeting
    assert other.embeddings.create(model="embedding", input="vector").data[0].embedding == vector


def files():
    content = b"\xef\xbb\xbf{}\r\n\x00\xff"
    expiry = {"anchor": "created_at", "seconds": 3600}
    made = [
        client.files.create(file=("línes.jsonl", content), purpose="batch"),
        client.files.create(file=("línes.jsonl", content), purpose="evals", expires_after=expiry),
        client.files.create(file=("línes.jsonl", content), purpose="batch"),
    ]
    for f in made:
        assert (f.filename, f.bytes, f.status) == ("línes.jsonl", len(content), "processed"), f
        assert client.files.content(f.id).read() == content
    assert made[1].expires_at == made[1].created_at + 3600
    assert {f.id for f in client.files.list(limit=1)} == {f.id for f in made}
    assert len(list(client.files.list(limit=1, purpose="batch", order="asc"))) == 2
    for f in client.files.list(limit=1):
        assert client.files.delete(f.id).deleted
    assert list(client.files.list()) == []
    raises(openai.NotFoundError, lambda: client.files.retrieve(made[0].id))
    assert raises(openai.BadRequestError, lambda: client.files.create(file=b"x", purpose="nonsense")).param == "purpose"
    raises(openai.APIStatusError, lambda: client.uploads.create(bytes=1, filename="f", mime_type="text/plain", purpose="batch"))


def batches():
    def line(name, content, model="chat"):
        body = {"model": model, "messages": say(content)}
        return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})

    def make(lines, **more):
        file = client.files.create(file=("l.jsonl", "\n".join(lines).encode()), purpose="batch")
        return client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", **more)

    def ended(b):
        while b.status in ("validating", "in_progress", "finalizing", "cancelling"):
            time.sleep(0.05)
            b = client.batches.retrieve(b.id)
        return b

    b = ended(make([line("a", "hello"), line("b", "forbidden")], metadata={"k": "v"}))
    assert (b.status, b.request_counts.completed, b.request_counts.failed, b.metadata) == ("completed", 1, 1, {"k": "v"}), b
    answer = json.loads(client.files.content(b.output_file_id).text)
    assert answer["response"]["body"]["choices"][0]["message"]["content"] == greeting and answer["error"] is None
    assert json.loads(client.files.content(b.error_file_id).text)["response"]["status_code"] == 400
    assert b.usage.total_tokens > 0 and client.files.retrieve(b.output_file_id).purpose == "batch_output"
    raises(openai.ConflictError, lambda: client.batches.cancel(b.id))
    failed = ended(make([line("a", "hello", "none")]))
    assert (failed.status, failed.errors.data[0].code, failed.errors.data[0].line) == ("failed", "model_not_found", 1)
    cancelled = client.batches.cancel(make([line(str(i), "hello") for i in range(1500)]).id)
    assert ended(cancelled).status == "cancelled"
    assert [x.id for x in client.batches.list(limit=2)] == [cancelled.id, failed.id, b.id]


def many():
    async def run():
        other = openai.AsyncOpenAI(base_url=base + "/v1", api_key=key, max_retries=0)
        done = await asyncio.gather(*(other.chat.completions.create(model="chat", messages=say("hello")) for _ in range(50)))
        assert all(d.choices[0].message.content == greeting for d in done)
        await other.close()

    asyncio.run(run())


for check in (models, chat, stream, tools, structured, embeddings, errors, azure, files, batches, many):
    check()
    print("ok", check.__name__, flush=True)
