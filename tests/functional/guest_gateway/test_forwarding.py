"""A request of a guest at the upstream, and the answer back: what goes on and what does not."""
import json

import pytest

from tests.clients.guest_gateway import events, question
from tests.fakes.llm_upstream import KEY

TEXT = "w0 w1 w2 w3 w4 "


def test_the_operator_s_key_is_in_place_of_what_the_guest_sends(asker, upstream):
    status, _, body = asker.ask("/v1/chat/completions", question(), {
        "Authorization": "Bearer guests", "x-api-key": "guests", "Cookie": "a=b",
        "OpenAI-Beta": "x=1", "X-Forwarded-For": "1.2.3.4", "Host": "evil",
        "Idempotency-Key": "another's"})
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == TEXT
    method, path, headers, sent = upstream.seen[-1]
    assert (method, path, json.loads(sent)) == (
        "POST", "/v1/chat/completions", question("first-model"))
    assert set(headers) == {"Host", "Accept", "Authorization", "OpenAI-Beta", "Content-Type",
                            "User-Agent", "Content-Length", "Accept-Encoding"}
    assert headers["Authorization"] == f"Bearer {KEY}" and headers["Host"] != "evil"
    assert headers["Accept-Encoding"] == "identity"


def test_both_forms_of_the_address_and_three_places_of_the_secret(asker, upstream):
    for path in ("/v1/chat/completions", "/chat/completions"):
        assert asker.chat(path=path)[0] == 200
    for headers in ({"Authorization": f"Bearer {asker.secret}"}, {"x-api-key": asker.secret}):
        assert asker.ask("/v1/messages", question("claude-x"), headers, secret="")[0] == 200
    assert upstream.seen[-1][2]["x-api-key"] == KEY


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "/v1/messages/count_tokens"])
def test_what_is_anthropic_s_goes_to_its_upstream(asker, upstream, path):
    status, _, _ = asker.ask(path, question("claude-x"), {
        "anthropic-version": "2023-06-01", "anthropic-beta": "tools"})
    method, asked, headers, _ = upstream.seen[-1]
    assert (status, asked) == (200, path)
    assert headers["x-api-key"] == KEY and "Authorization" not in headers
    assert (headers["Anthropic-Version"], headers["Anthropic-Beta"]) == ("2023-06-01", "tools")


def test_a_body_of_tens_of_megabytes_comes_through_as_it_is(asker, upstream):
    picture = "data:image/png;base64," + "A" * 30_000_000
    content = [{"type": "image_url", "image_url": {"url": picture}}]
    assert asker.chat(messages=[{"role": "user", "content": content}])[0] == 200
    assert json.loads(upstream.seen[-1][3]) == question(
        "first-model", messages=[{"role": "user", "content": content}])
    assert asker.last_call().reserved_tokens < 5000, "a picture is no text"


def test_a_form_with_a_file(asker, upstream):
    parts = [b'name="model"\r\n\r\none', b'name="file"; filename="a.wav"\r\n\r\n\r\n--x\0\1']
    form = b"".join(b"--limit\r\nContent-Disposition: form-data; " + part + b"\r\n"
                    for part in parts) + b"--limit--\r\n"
    status, _, body = asker.ask("/v1/audio/transcriptions", form, {
        "Content-Type": "multipart/form-data; boundary=limit"})
    assert (status, json.loads(body)["text"]) == (200, "heard")
    assert upstream.seen[-1][3] == form.replace(b"\r\none", b"\r\nfirst-model")
    assert asker.last_call().output_tokens == upstream.words


def test_the_list_of_models_is_the_configuration_s(asker, upstream):
    def names(**headers):
        _, _, body = asker.ask("/v1/models", None, headers)
        return [each["id"] for each in json.loads(body)["data"]]

    assert names() == ["both", "one"]
    assert names(**{"anthropic-version": "2023-06-01"}) == ["claude-x"]
    assert asker.ask("/v1/models/one")[0] == 200 and asker.ask("/v1/models/two")[0] == 404


def test_an_event_passes_as_soon_as_it_comes(asker, upstream):
    upstream.words, upstream.pause_s = 40, 0.3
    link, answer = asker.begin("/v1/chat/completions", question(stream=True))
    first = answer.readline()
    assert b"w0" in first and upstream.under_way == 1, "the rest is still to come"
    upstream.pause_s = 0.0
    assert events(first + answer.read())[-1] == "[DONE]"
    link.close()


@pytest.mark.parametrize("wanted", [False, True])
def test_the_usage_of_a_chat_reaches_only_those_who_asked(asker, upstream, wanted):
    more = {"stream_options": {"include_usage": True}} if wanted else {}
    _, _, body = asker.chat(stream=True, **more)
    found = [json.loads(event) for event in events(body)[:-1]]
    assert [event["usage"] for event in found if event["usage"]] == [upstream.chat_usage] * wanted
    assert all(event["choices"] for event in found) is not wanted
    assert "".join(event["choices"][0]["delta"].get("content", "")
                   for event in found if event["choices"]) == TEXT


def test_what_an_upstream_refuses_is_passed_on_in_its_own_words(asker, upstream):
    upstream.refusals.append((400, {}))
    status, _, body = asker.chat()
    assert (status, json.loads(body)["error"]["message"]) == (400, "not now")
    upstream.refusals.append((429, {"Retry-After": "7", "X-Internal": "organisation"}))
    status, headers, _ = asker.chat()
    assert (status, headers["Retry-After"], headers["X-Internal"]) == (429, "7", None)


@pytest.mark.parametrize("status", [429, 503])
def test_another_upstream_is_asked_where_there_is_one(asker, upstream, upstreams, status):
    upstream.refusals.append((status, {"Retry-After": "7"}))
    answer = asker.chat("both", stream=True)
    assert answer[0] == 200 and json.loads(upstreams[1].seen[-1][3])["model"] == "second-model"
    row = asker.last_call()
    assert (row.upstream, row.model_used, row.complete) == ("second", "second-model", True)


def test_the_operator_s_key_is_not_in_a_refusal_of_it(asker, upstream):
    upstream.refusals.append((401, {}))
    status, _, body = asker.chat()
    assert (status, json.loads(body)["error"]["type"]) == (502, "api_error")
    assert b"operator's key" in body and KEY.encode() not in body
