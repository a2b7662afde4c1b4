"""What a call holds until it has ended: its place, its room in memory.

It is given back when the request has been handled or, for an answer that is sent as it is made,
when that was sent or given up.
"""
from contextlib import ExitStack

from flask import Flask, Response, g


def install(app: Flask) -> None:
    """Let requests of `app` hold things."""
    app.teardown_request(_give_back)


def held() -> ExitStack:
    """What the present request holds; its callbacks give things back."""
    stack: ExitStack | None = g.get("held")
    if stack is None:
        stack = g.held = ExitStack()
    return stack


def keep_until_sent(response: Response) -> None:
    """Hold everything until `response` has been sent, or its client has gone."""
    response.call_on_close(held().pop_all().close)


def _give_back(error: BaseException | None) -> None:
    stack = g.pop("held", None)
    if stack is not None:
        stack.close()
