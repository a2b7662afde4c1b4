"""The calls that are under way, and their rows: each that was begun is ended, whatever becomes of
who made it.

**What if we die here?** The next process of this name ends what this one left, by estimate.
"""
import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from weakref import WeakValueDictionary

from app.guest_gateway.llm.endpoints import Body, Endpoint
from app.guest_gateway.llm.request_body import Asked
from app.guest_gateway.llm.told_or_estimated_usage import Counted
from app.guest_gateway.rows import Rows
from models.database import DatabaseFailed, now
from services.llm import allowed_calls, call_rows, routing
from services.llm.call_cost import Usage
from services.llm.call_rows import Ending, NewCall, Progress
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import LlmConfig, Target

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Call:
    """A call: what may answer it, and what has come of it. `call_id` is None for what costs
    nothing; `unheard_output` as in NewCall."""

    config: LlmConfig
    targets: list[Target]
    call_id: int | None
    estimated_input: int
    reserved_output: int
    unheard_output: int
    target: Target
    status: int | None = None
    counted: Counted | None = None
    first_byte_at: datetime | None = field(default=None)

    def began(self) -> None:
        """The first byte of the answer has come."""
        self.first_byte_at = self.first_byte_at or now()

    @property
    def ending(self) -> Ending:
        """How it has ended, if it ends now."""
        if self.status is not None and self.status >= 300:
            return Ending(self.target, self.status)
        usage = Usage(input=self.estimated_input, output=self.unheard_output)
        if self.counted is not None:
            usage = self.counted.usage(self.estimated_input)
        return Ending(self.target, self.status, usage,
                      self.counted is not None and self.counted.complete, self.first_byte_at)


class Calls:
    """All calls of this process; `name` is the same after a restart."""

    def __init__(self, name: str, rows: Rows) -> None:
        self._name, self._rows, self._made_at = name, rows, now()
        # Apart, so that ends which wait for the database keep no call from being refused, and
        # begins, which wait for a lock of their owner there, no look-up.
        self._ending_rows, self._beginning_rows = Rows(), Rows()
        # One begin of an owner at a time is in those threads: else one owner's would hold them all,
        # waiting for each other. Weak, so that only those in use are kept.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._open: set[Call] = set()
        self._endings: set[asyncio.Task[None]] = set()

    async def begin(self, config: LlmConfig, caller: LlmCaller, endpoint: Endpoint,
                    asked: Asked, resting: set[str]) -> Call:
        """Begin a call; raises what the rules raise."""
        turn = self._turns.setdefault(caller.owner_id, asyncio.Lock())
        await turn.acquire()
        begun = asyncio.ensure_future(
            self._beginning_rows.ask(self._begin, config, caller, endpoint, asked, resting))
        # It goes on when its caller leaves, and has its turn until it ends.
        begun.add_done_callback(lambda _: turn.release())
        try:
            call = await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(self._end_unsent)
            raise
        self._open.add(call)
        return call

    def end(self, call: Call, ending: Ending | None = None) -> None:
        """Write the end of a call, soon; `ending` if it is not what has come of it."""
        self._open.discard(call)
        if call.call_id is None:
            return
        task = asyncio.ensure_future(self._ending_rows.ask(
            self._finish, call.config, call.call_id, ending or call.ending))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def keep_reporting(self) -> None:
        """End what the process before left, as soon as the database answers, and say every few
        seconds which calls are under way, until cancelled."""
        ended = False
        while True:
            ended = ended or await self._try(call_rows.close_left, self._name, self._made_at)
            await asyncio.sleep(call_rows.REPORT_EVERY_S)
            await self._try(call_rows.report_progress, [
                Progress(call.call_id, call.ending.usage.output, call.first_byte_at)
                for call in self._open if call.call_id is not None])

    async def close(self, limit_s: float) -> None:
        """Return when all ends are written, or after `limit_s`."""
        if self._endings:
            await asyncio.wait(set(self._endings), timeout=limit_s)

    def _begin(self, config: LlmConfig, caller: LlmCaller, endpoint: Endpoint, asked: Asked,
               resting: set[str]) -> Call:
        if not endpoint.counted:
            allowed_calls.admit(config, caller)
        model = None if endpoint.body is Body.NONE else asked.model
        targets = routing.route(config, caller, endpoint.protocol, model, resting,
                                allowed_calls.SWITCHES.upstreams_off())
        if endpoint.counted:
            targets = allowed_calls.with_known_cost(config, caller, targets)
        new = NewCall(self._name, endpoint.protocol, asked.model, targets[0], asked.text_bytes,
                      asked.max_output_tokens, asked.is_stream)
        call_id = call_rows.begin(config, caller, new) if endpoint.counted else None
        return Call(config, targets, call_id, new.estimated_input, new.reserved_output(config),
                    new.unheard_output(config), targets[0])

    def _end_unsent(self, begun: "asyncio.Future[Call]") -> None:
        """Its caller went away before anything was sent: it used nothing."""
        if not begun.cancelled() and begun.exception() is None:
            call = begun.result()
            self.end(call, Ending(call.target, None))

    @staticmethod
    def _finish(config: LlmConfig, call_id: int, ending: Ending) -> None:
        try:
            call_rows.finish(config, call_id, ending)
        except DatabaseFailed as error:
            log.error("the end of a call could not be written (%s): it is swept, by estimate",
                      type(error).__name__, extra={"call": call_id})

    async def _try(self, write: Callable[..., None], *arguments: object) -> bool:
        try:
            await self._rows.ask(write, *arguments)
        except DatabaseFailed as error:
            log.warning("calls under way were not noted: %s", type(error).__name__)
            return False
        return True
