"""The streams in which a model calls two tools, in each dialect, as events (name, data). `WORD` in
a name says that the event has a piece of arguments."""

# What a reader could take for something else: the ends of a stream, a usage, a line's end.
ARGUMENTS = ('{"path": "\\u00fc \u00fc.txt", "text": "data: [DONE]\\n\\n\\"usage\\": {\\"x\\": 1},'
             ' \\"type\\": \\"message_stop\\""}')
CALLS = (("call_1", "write", ARGUMENTS), ("call_2", "look", '{"usage": {"output_tokens": 99}}'))
# Little enough for a piece to be one token, by estimate too.
_PIECE = 2


def pieces(arguments):
    return [arguments[at:at + _PIECE] for at in range(0, len(arguments), _PIECE)]


def chat(common, usage):
    """Of chat completions; `usage` is None if it was not asked for."""
    def event(delta, finish=None):
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield "", event({"role": "assistant", "content": None})
    for number, (call_id, name, arguments) in enumerate(CALLS):
        yield "", event({"tool_calls": [{"index": number, "id": call_id, "type": "function",
                                         "function": {"name": name, "arguments": ""}}]})
        for piece in pieces(arguments):
            yield "WORD", event({"tool_calls": [
                {"index": number, "function": {"arguments": piece}}]})
    yield "", event({}, "tool_calls")
    if usage is not None:
        yield "", {**common, "choices": [], "usage": usage}
    yield "", "[DONE]"


def responses(head, usage):
    """Of responses."""
    def event(kind, **more):
        return kind, {"type": kind.replace("WORD", ""), **more}

    yield event("response.created", response={**head, "status": "in_progress"})
    items = [{"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name,
              "arguments": arguments, "status": "completed"} for call_id, name, arguments in CALLS]
    for number, item in enumerate(items):
        place = {"item_id": item["id"], "output_index": number}
        yield event("response.output_item.added", output_index=number,
                    item={**item, "arguments": "", "status": "in_progress"})
        for piece in pieces(item["arguments"]):
            yield event("WORDresponse.function_call_arguments.delta", **place, delta=piece)
        yield event("response.function_call_arguments.done", **place,
                    arguments=item["arguments"])
        yield event("response.output_item.done", output_index=number, item=item)
    yield event("response.completed", response={
        **head, "status": "completed", "output": items, "usage": usage})


def messages(message, output_tokens):
    """Of messages."""
    def event(kind, **more):
        return kind, {"type": kind.replace("WORD", ""), **more}

    yield event("message_start", message=message)
    for number, (call_id, name, arguments) in enumerate(CALLS):
        yield event("content_block_start", index=number, content_block={
            "type": "tool_use", "id": call_id, "name": name, "input": {}})
        for piece in pieces(arguments):
            yield event("WORDcontent_block_delta", index=number, delta={
                "type": "input_json_delta", "partial_json": piece})
        yield event("content_block_stop", index=number)
    yield event("message_delta", delta={"stop_reason": "tool_use"},
                usage={"output_tokens": output_tokens})
    yield event("message_stop")
