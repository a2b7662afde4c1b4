"""What a request for a shell is told that is no WebSocket, on whichever host it comes in."""
from typing import NoReturn

from services.errors import UpgradeRequired
from services.sandboxes import find
from services.sandboxes.caller import Caller


def refuse_plain(caller: Caller, sandbox_id: str) -> NoReturn:
    """Raise UpgradeRequired; before it whatever keeps the caller from the sandbox."""
    find.get_owned(caller, sandbox_id)
    raise UpgradeRequired("A shell is a WebSocket: send Upgrade: websocket, version 13.")
