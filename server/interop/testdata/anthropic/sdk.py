"""What a program does with Anthropic's SDK for Python. Each check prints its name once it holds."""

import asyncio
import os

import anthropic
from pydantic import BaseModel

base, key = os.environ["BASE_URL"], os.environ["API_KEY"]
client = anthropic.Anthropic(base_url=base, api_key=key, max_retries=0)
greeting = "Hi there, what can I do for you today?"
weather = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}


def ask(content, **more):
    return {"model": "claude", "max_tokens": 100, "messages": [{"role": "user", "content": content}], **more}


def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def message():
    done = client.messages.create(**ask("hello", system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]))
    assert (done.content[0].text, done.stop_reason) == (greeting, "end_turn")


def stream():
    events = [e.type for e in client.messages.create(**ask("hello", stream=True))]
    assert events[0] == "message_start" and events[-1] == "message_stop", events
    with client.messages.stream(**ask("hello")) as helper:
        assert "".join(helper.text_stream) == greeting


def tools():
    use = client.messages.create(**ask("What is the weather in Oslo?", tools=[weather])).content[-1]
    assert (use.type, use.name, use.input) == ("tool_use", "get_weather", {"city": "Oslo"})
    with client.messages.stream(**ask("What is the weather in Oslo?", tools=[weather])) as helper:
        final = helper.get_final_message()
    assert final.stop_reason == "tool_use" and final.content[-1].input == {"city": "Oslo"}


def structured():
    class Person(BaseModel):
        name: str
        age: int

    assert client.messages.parse(**ask("person", output_format=Person)).parsed_output == Person(name="Ada", age=36)


def beta():
    assert client.beta.messages.create(**ask("hello", betas=["interleaved-thinking-2025-05-14"])).content[0].text == greeting


def image():
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert client.messages.create(**ask([{"type": "image", "source": source}, {"type": "text", "text": "image"}])).content[0].text == "A red square."


def models():
    for surface in (client, anthropic.Anthropic(base_url=base + "/anthropic", api_key=key, max_retries=0)):
        model, _ = surface.models.list(limit=5)
        assert (model.id, model.type, model.display_name, model.lifecycle) == ("claude", "model", "claude", "active")
        assert model.created_at.tzinfo and surface.models.retrieve("claude") == model
        assert raises(anthropic.NotFoundError, lambda: surface.models.retrieve("chat")).type == "not_found_error"


def count_tokens():
    prompt = {"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "system": "Be kind.", "tools": [weather]}
    used = client.messages.create(model="counted", max_tokens=100, **prompt).usage.input_tokens
    for surface in (client, anthropic.Anthropic(base_url=base + "/anthropic", api_key=key, max_retries=0)):
        assert surface.messages.count_tokens(model="counted", **prompt).input_tokens == used > 0
        assert surface.beta.messages.count_tokens(model="counted", betas=["token-counting-2024-11-01"], **prompt).input_tokens == used
    unknown = raises(anthropic.NotFoundError, lambda: client.messages.count_tokens(model="nix", **prompt))
    assert unknown.type == "not_found_error" and unknown.request_id
    raises(anthropic.NotFoundError, lambda: client.messages.count_tokens(model="claude", **prompt))  # that provider counts nothing
    raises(anthropic.BadRequestError, lambda: client.messages.count_tokens(model="chat", **prompt))
    raises(anthropic.BadRequestError, lambda: client.messages.count_tokens(model="counted", messages=[]))


def not_served():
    for call in (
        client.messages.batches.list,
        client.beta.files.list,
    ):
        assert raises(anthropic.NotFoundError, call).type == "not_found_error"


def errors():
    refused = raises(anthropic.BadRequestError, lambda: client.messages.create(**ask("forbidden")))
    assert "refuses" in refused.message
    unknown = raises(anthropic.NotFoundError, lambda: client.messages.create(**{**ask("hello"), "model": "nix"}))
    assert unknown.type == "not_found_error" and unknown.request_id
    other = raises(anthropic.BadRequestError, lambda: client.messages.create(**{**ask("hello"), "model": "chat"}))
    assert other.type == "invalid_request_error"
    stranger = anthropic.Anthropic(base_url=base, api_key="fb_wrong", max_retries=0)
    for call in (stranger.models.list, lambda: stranger.messages.create(**ask("hello"))):
        assert raises(anthropic.AuthenticationError, call).type == "authentication_error"


def concurrent():
    async def all_of_them():
        async with anthropic.AsyncAnthropic(base_url=base + "/anthropic", api_key=None, auth_token=key, max_retries=0) as bearer:
            return await asyncio.gather(*[bearer.messages.create(**ask("hello")) for _ in range(10)])

    assert [done.content[0].text for done in asyncio.run(all_of_them())] == [greeting] * 10


for check in (message, stream, tools, structured, beta, image, models, count_tokens, not_served, errors, concurrent):
    check()
    print("ok " + check.__name__)
