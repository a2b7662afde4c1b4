"""An upstream whose model has its agent work: `codex`, by the tool for commands that it offers."""
import json
from collections import deque

from tests.fakes.llm_upstream import LlmUpstream

_TOOL = "exec_command"


class WorkingModel(LlmUpstream):
    """`turns` are had first, in this order: what the model says, and the command that its agent is
    to run then, None at the end of its work. Questions without the tool take none of them."""

    def __init__(self):
        super().__init__()
        self.turns = deque()

    def _responses(self, asked):
        offered = [tool.get("name") for tool in asked.get("tools", ())]
        if not self.turns or _TOOL not in offered:
            yield from super()._responses(asked)
            return
        text, command = self.turns.popleft()
        number = len(self.seen)
        items = [{"type": "message", "id": f"msg_{number}", "role": "assistant",
                  "content": [{"type": "output_text", "text": text, "annotations": []}]}]
        if command is not None:
            items.append({"type": "function_call", "id": f"fc_{number}", "name": _TOOL,
                          "call_id": f"call_{number}", "arguments": json.dumps({"cmd": command})})
        response = {"id": f"resp_{number}", "object": "response", "model": asked["model"],
                    "created_at": 1, "output": []}
        yield "response.created", {"type": "response.created",
                                   "response": {**response, "status": "in_progress"}}
        for place, item in enumerate(items):
            yield "response.output_item.added", {
                "type": "response.output_item.added", "output_index": place,
                "item": {**item, "status": "in_progress"}}
            yield "WORDresponse.output_item.done", {
                "type": "response.output_item.done", "output_index": place,
                "item": {**item, "status": "completed"}}
        yield "response.completed", {"type": "response.completed", "response": {
            **response, "status": "completed", "output": items, "usage": self.responses_usage}}
