"""An upstream for models that speaks both protocols over real sockets, and does what tests tell it.

An answer is the words `w0 w1 ...`, a token each; the stream of a question with `calls_tool` has the
calls of `tool_calls` instead, whose pieces count as words. Without the operator's key it is 401.
The usage of a chat's stream is sent only when it is asked for.
"""
import asyncio
import json
import threading
import time
from collections import deque

from aiohttp import web

from tests.fakes import tool_calls

KEY = "sk-operators-own-key"
INPUT, CACHED, CACHE_WRITE = 7, 3, 2


class LlmUpstream:
    """`words` is the length of an answer, `pause_s` comes before each of them; `refusals` are
    answered first, as (status, headers).

    A stream is cut after `cut_after` words, or has an error after `error_after`; after as many as
    its question says in `silent_after` nothing more comes. An answer takes `hidden` tokens of
    reasoning besides, of which its stream says before the first word only that there is some.
    `said` counts the words of streams; `begun_at` is when the last stream came to its first word,
    of the monotonic clock; `sent` has the events of the last one as they were written."""

    def __init__(self):
        self.words, self.hidden, self.pause_s = 5, 0, 0.0
        self.cut_after = self.error_after = None
        self.refusals = deque()
        self.seen, self.sent = [], []
        self.under_way = self.left_early = self.said = 0
        self.begun_at = 0.0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._begin())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _begin(self):
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_route("*", "/v1/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _answer(self, request):
        body = await request.read()
        self.seen.append((request.method, request.path_qs, dict(request.headers), body))
        key = request.headers.get("x-api-key") or request.headers.get("Authorization", "")[7:]
        if key != KEY:
            return web.json_response({"error": {"message": f"Incorrect API key: {key}"}},
                                     status=401)
        if self.refusals:
            status, headers = self.refusals.popleft()
            return web.json_response({"error": {"message": "not now", "type": "refused"}},
                                     status=status, headers=headers)
        path = request.match_info["path"]
        if path.startswith("models"):
            return web.json_response({"object": "list", "data": [{"id": "upstreams-own"}]})
        if not request.content_type.endswith("json"):
            return web.json_response({"text": "heard", "usage": {
                "type": "tokens", "input_tokens": INPUT, "output_tokens": self.words}})
        asked = json.loads(body)
        events = {"chat/completions": self._chat, "responses": self._responses,
                  "messages": self._messages}.get(path)
        if events is None:
            return web.json_response({"data": [], "input_tokens": INPUT,
                                      "usage": {"prompt_tokens": INPUT, "total_tokens": INPUT}})
        if not asked.get("stream"):
            await asyncio.sleep(self.pause_s)
            return web.json_response(self._whole(path, asked))
        return await self._stream(request, events(asked), asked.get("silent_after"))

    async def _stream(self, request, events, silent_after):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.under_way += 1
        words, self.sent = 0, []
        try:
            for name, event in events:
                is_word = "WORD" in name
                if is_word:
                    await asyncio.sleep(self.pause_s)
                    if words == 0:
                        self.begun_at = time.monotonic()
                    words += 1
                name = name.replace("WORD", "")
                head = f"event: {name}\n" if name else ""
                text = event if isinstance(event, str) else json.dumps(event)
                self.sent.append(f"{head}data: {text}\n\n".encode())
                await response.write(self.sent[-1])
                if is_word and words == self.error_after:
                    error = {"type": "error", "error": {"type": "api_error", "message": "broken"}}
                    await response.write(f"event: error\ndata: {json.dumps(error)}\n\n".encode())
                    return response
                if is_word and words == silent_after:
                    await asyncio.Event().wait()
                if is_word and words == self.cut_after:
                    request.transport.abort()
                    return response
        except (asyncio.CancelledError, ConnectionError):
            self.left_early += 1
            raise
        finally:
            self.said += words
            self.under_way -= 1
        await response.write_eof()
        return response

    @property
    def chat_usage(self):
        output = self.words + self.hidden
        return {"prompt_tokens": INPUT + CACHED, "completion_tokens": output,
                "total_tokens": INPUT + CACHED + output,
                "prompt_tokens_details": {"cached_tokens": CACHED},
                "completion_tokens_details": {"reasoning_tokens": self.hidden or 1}}

    @property
    def responses_usage(self):
        output = self.words + self.hidden
        return {"input_tokens": INPUT + CACHED, "output_tokens": output,
                "input_tokens_details": {"cached_tokens": CACHED},
                "output_tokens_details": {"reasoning_tokens": self.hidden or 1},
                "total_tokens": INPUT + CACHED + output}

    @property
    def messages_usage(self):
        return {"input_tokens": INPUT, "output_tokens": self.words + self.hidden,
                "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": CACHE_WRITE}

    def _chat(self, asked):
        wants = (asked.get("stream_options") or {}).get("include_usage")
        common = {"id": "chat", "object": "chat.completion.chunk", "created": 1,
                  "model": asked["model"], **({"usage": None} if wants else {})}
        if asked.get("calls_tool"):
            yield from tool_calls.chat(common, self.chat_usage if wants else None)
            return
        if self.hidden:
            delta = {"role": "assistant", "content": "", "reasoning_content": "hm"}
            yield "", {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for number in range(self.words):
            delta = {"role": "assistant", "content": f"w{number} "}
            yield "WORD", {**common, "choices": [
                {"index": 0, "delta": delta, "finish_reason": None}]}
        yield "", {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        if wants:
            yield "", {**common, "choices": [], "usage": self.chat_usage}
        yield "", "[DONE]"

    def _responses(self, asked):
        text = "".join(f"w{number} " for number in range(self.words))
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}
        head = {"id": "resp_1", "object": "response", "model": asked["model"], "created_at": 1,
                "output": []}
        if asked.get("calls_tool"):
            yield from tool_calls.responses(head, self.responses_usage)
            return
        yield "response.created", {"type": "response.created", "response": {
            **head, "status": "in_progress"}}
        if self.hidden:
            yield "response.output_item.added", {
                "type": "response.output_item.added", "output_index": 0,
                "item": {"type": "reasoning", "id": "rs_1", "summary": []}}
        yield "response.output_item.added", {
            "type": "response.output_item.added", "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []}}
        for number in range(self.words):
            yield "WORDresponse.output_text.delta", {
                "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
                "content_index": 0, "delta": f"w{number} "}
        yield "response.output_item.done", {"type": "response.output_item.done",
                                            "output_index": 0, "item": item}
        yield "response.completed", {"type": "response.completed", "response": {
            **head, "status": "completed", "output": [item], "usage": self.responses_usage}}

    def _messages(self, asked):
        usage = {**self.messages_usage, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
                   "model": asked["model"], "stop_reason": None, "usage": usage}
        if asked.get("calls_tool"):
            yield from tool_calls.messages(message, self.words)
            return
        yield "message_start", {"type": "message_start", "message": message}
        if self.hidden:
            yield "content_block_start", {
                "type": "content_block_start", "index": 0,
                "content_block": {"type": "redacted_thinking", "data": "c2VjcmV0"}}
        yield "content_block_start", {"type": "content_block_start", "index": 0,
                                      "content_block": {"type": "text", "text": ""}}
        for number in range(self.words):
            yield "WORDcontent_block_delta", {
                "type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": f"w{number} "}}
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                                "usage": {"output_tokens": self.words + self.hidden}}
        yield "message_stop", {"type": "message_stop"}

    def _whole(self, path, asked):
        text = "".join(f"w{number} " for number in range(self.words))
        if path == "messages":
            return {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"],
                    "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
                    "usage": self.messages_usage}
        if path == "responses":
            return {"id": "resp_1", "object": "response", "model": asked["model"],
                    "output": [], "usage": self.responses_usage}
        return {"id": "chat", "object": "chat.completion", "model": asked["model"],
                "choices": [{"index": 0, "finish_reason": "stop",
                             "message": {"role": "assistant", "content": text}}],
                "usage": self.chat_usage}
