"""Tools go to a model as the caller wrote them, and its calls of them come back as it made them, in
every dialect."""
import contextlib
import http.client
import json

import pytest

from tests.clients.guest_gateway import question
from tests.fakes.llm_upstream import INPUT
from tests.fakes.tool_calls import CALLS, pieces

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
MODELS = {CHAT: ("one", "first-model"), RESPONSES: ("one", "first-model"),
          MESSAGES: ("claude-x", "claude-x")}
# Written as no library would, with names in it that mean something elsewhere.
TOOLS = ('[ {"type" :"function","name":"write", "function":{"name":"write","parameters":'
         '{"type":"object", "properties":{ "n":{"minimum":1.0e0,"maximum":1e400},'
         '"model":{"enum":["\\u00e9","\u00e9", "a\\/b"]}, "stream":{"const":true}}}}},\n\t'
         '{"name":"look","input_schema":{"stream_options":{"include_usage":false}}}]')
WANTED = {"stream_options": {"include_usage": True}}


def body_of(path, **more):
    """A question with the tools, as bytes."""
    asked = question(MODELS[path][0], stream=True, calls_tool=True, **more)
    return json.dumps(asked)[:-1].encode() + b', "tools" : ' + TOOLS.encode() + b"}"


def arguments_of(path, events):
    """The arguments that a client puts together, by call."""
    heard = ["", ""]
    for event in events:
        if path == CHAT:
            for call in event["choices"][0]["delta"].get("tool_calls", ()):
                heard[call["index"]] += call["function"]["arguments"]
        elif event["type"] == "response.function_call_arguments.delta":
            heard[event["output_index"]] += event["delta"]
        elif event["type"] == "content_block_delta":
            heard[event["index"]] += event["delta"]["partial_json"]
    return heard


@pytest.mark.parametrize("path", MODELS)
def test_tools_and_calls_pass_byte_for_byte(asker, upstream, path):
    body = body_of(path, **(WANTED if path == CHAT else {}))
    status, headers, heard = asker.ask(path, body)
    assert (status, headers.get_content_type()) == (200, "text/event-stream")
    assert heard == b"".join(upstream.sent)
    mine, theirs = MODELS[path]
    assert upstream.seen[-1][3] == body.replace(f'"model": "{mine}"'.encode(),
                                                f'"model":"{theirs}"'.encode(), 1)
    found = [json.loads(event.partition(b"data: ")[2]) for event in upstream.sent
             if not event.startswith(b"data: [DONE]")]
    said = [event for event in found if event.get("choices") != []]
    assert arguments_of(path, said) == [arguments for _, _, arguments in CALLS]
    row = asker.last_call()
    assert (row.complete, row.input_tokens, row.output_tokens) == (True, INPUT, upstream.words)


def test_a_chat_that_wants_no_usage_lacks_that_event_alone(asker, upstream):
    _, _, heard = asker.ask(CHAT, body_of(CHAT))
    usage = [event for event in upstream.sent if b'"choices": []' in event]
    assert len(usage) == 1
    assert heard == b"".join(event for event in upstream.sent if event not in usage)
    assert TOOLS.encode() in upstream.seen[-1][3]
    assert asker.last_call().output_tokens == upstream.words


@pytest.mark.parametrize("path", MODELS)
def test_a_call_that_breaks_off_is_counted_by_what_came(asker, upstream, path):
    upstream.cut_after = 5
    assert upstream.cut_after < len(pieces(CALLS[0][2]))
    link, answer = asker.begin(path, body_of(path))
    with contextlib.closing(link), pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    assert broken.value.partial == b"".join(upstream.sent)
    row = asker.last_call()
    assert (row.complete, row.output_tokens) == (False, 5)


@pytest.mark.parametrize("path", MODELS)
def test_what_a_tool_gave_goes_to_the_model_as_it_is(asker, upstream, path):
    call_id, name, arguments = CALLS[0]
    messages = {
        CHAT: [{"role": "assistant", "content": None, "tool_calls": [
            {"id": call_id, "type": "function",
             "function": {"name": name, "arguments": arguments}}]},
            {"role": "tool", "tool_call_id": call_id, "content": "done"}],
        MESSAGES: [{"role": "assistant", "content": [
            {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call_id, "content": "done"}]}],
    }
    more = {"input": [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call_output", "call_id": call_id, "output": "done"}]
    } if path == RESPONSES else {"messages": messages[path]}
    ours, theirs = MODELS[path]
    assert asker.ask(path, question(ours, **more))[0] == 200
    assert json.loads(upstream.seen[-1][3]) == question(theirs, **more)
