"""What a program does with responses of OpenAI's SDK for Python. Each check prints its name once it holds."""

import os
import time

import openai
from pydantic import BaseModel

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]
client = openai.OpenAI(base_url=base + "/v1", api_key=key, max_retries=0)
greeting = "Hi there, what can I do for you today?"
weather = {"type": "function", "name": "get_weather", "strict": False, "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def gapless(events):
    events = list(events)
    first = events[0].sequence_number
    assert [e.sequence_number for e in events] == list(range(first, first + len(events)))
    return events


def finished(id):
    while (r := client.responses.retrieve(id)).status in ("queued", "in_progress"):
        time.sleep(0.02)
    return r


def create():
    r = client.responses.create(model="chat", input="hello", instructions="Be kind.")
    assert r.output_text == greeting and r.status == "completed" and r.usage.total_tokens > 0 and r._request_id
    assert client.responses.retrieve(r.id).output == r.output


def streaming():
    events = gapless(client.responses.create(model="chat", input="hello", stream=True))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == greeting


def helper():
    with client.responses.stream(model="chat", input="hello") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == greeting


def tools():
    first = client.responses.create(model="chat", input="weather", tools=[weather])
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, call.arguments) == ("get_weather", '{"city":"Oslo"}')
    second = client.responses.create(model="chat", previous_response_id=first.id, input=[
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}, {"role": "user", "content": "hello"}])
    assert second.output_text == greeting
    with client.responses.stream(model="chat", input="weather", tools=[weather]) as stream:
        assert next(i for i in stream.get_final_response().output if i.type == "function_call").name == "get_weather"


class Person(BaseModel):
    name: str
    age: int


def structured():
    assert client.responses.parse(model="chat", input="person", text_format=Person).output_parsed == Person(name="Ada", age=36)


def vision():
    r = client.responses.create(model="chat", input=[{"role": "user", "content": [
        {"type": "input_text", "text": "image"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}]}])
    assert r.output_text == "A red square."


def background():
    r = client.responses.create(model="chat", input="hello", background=True)
    assert r.status == "queued" and r.background
    assert finished(r.id).output_text == greeting
    every = gapless(client.responses.retrieve(r.id, stream=True))
    assert gapless(client.responses.retrieve(r.id, stream=True, starting_after=4)) == every[5:]
    with client.responses.stream(response_id=r.id, starting_after=1) as stream:
        assert stream.get_final_response().output_text == greeting
    assert client.responses.cancel(r.id).status == "completed"


def background_stream():
    events = gapless(client.responses.create(model="chat", input="hello", background=True, stream=True))
    assert events[0].response.status == "queued" and events[-1].response.output_text == greeting


def items():
    r = client.responses.create(model="chat", input=[{"role": "user", "content": t} for t in ("b", "a", "hello")])
    assert [i.content[0].text for i in client.responses.input_items.list(r.id, limit=2)] == ["hello", "a", "b"]


def deleting():
    r = client.responses.create(model="chat", input="hello")
    client.responses.delete(r.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(r.id))
    gone = raises(openai.BadRequestError, lambda: client.responses.create(model="chat", input="hello", previous_response_id=r.id))
    assert (gone.code, gone.param) == ("previous_response_not_found", "previous_response_id")


def refusals():
    hosted = raises(openai.BadRequestError, lambda: client.responses.create(model="chat", input="hello", tools=[{"type": "web_search"}]))
    assert hosted.param == "tools[0].type"
    failed = finished(client.responses.create(model="chat", input="forbidden", background=True).id)
    assert (failed.status, failed.error.code) == ("failed", "invalid_prompt")


def compact():
    first = client.responses.create(model="chat", input="hello")
    c = client.responses.compact(model="chat", previous_response_id=first.id, input="hello again")
    assert c.object == "response.compaction" and [i.type for i in c.output] == ["message", "message", "compaction"]
    assert c.usage.total_tokens > 0
    kept = [i.to_dict() for i in c.output]
    assert client.responses.create(model="chat", input=[*kept, {"role": "user", "content": "hello"}]).output_text == greeting
    kept[2]["encrypted_content"] = kept[2]["encrypted_content"][:-4]
    changed = raises(openai.BadRequestError, lambda: client.responses.create(model="chat", input=kept))
    assert changed.code == "invalid_encrypted_content"


def socket():
    direct = openai.OpenAI(base_url=os.environ["SERVER_URL"] + "/v1", api_key=key)

    def turn(connection, **request):
        connection.response.create(model="chat", **request)
        events = []
        for event in connection:
            events.append(event)
            if event.type in ("response.completed", "response.incomplete", "response.failed", "error"):
                return events

    with direct.responses.connect() as connection:
        first = gapless(turn(connection, input="hello", store=False))
        assert first[0].type == "response.created" and first[-1].response.output_text == greeting
        second = turn(connection, input="hello", store=False, previous_response_id=first[-1].response.id)
        assert second[-1].response.previous_response_id == first[-1].response.id
        lost = turn(connection, input="hello", previous_response_id="resp_none")[0]
        assert (lost.type, lost.status, lost.error.code) == ("error", 400, "previous_response_not_found")
        stored = turn(connection, input="hello")[-1].response
    assert client.responses.retrieve(stored.id).output_text == greeting


def azure():
    other = openai.AzureOpenAI(azure_endpoint=base, api_key=key, api_version="preview", max_retries=0)
    assert other.responses.create(model="chat", input="hello").output_text == greeting


for check in (create, streaming, helper, tools, structured, vision, background, background_stream, items, deleting, refusals, compact, socket, azure):
    check()
    print("ok", check.__name__, flush=True)
