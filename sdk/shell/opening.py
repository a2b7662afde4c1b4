"""Says how often, and for how long, a shell is tried to be opened again after one that broke."""
import time
from collections.abc import Callable

from sdk.shell.connection import Connection, Refused

PATIENCE_S, PAUSE_S = 60.0, 1.0
Open = Callable[[], Connection]


def open_patiently(open_connection: Open) -> Connection:
    """Try for a minute: a service that restarts refuses at first. Raises Refused."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return open_connection()
        except Refused as refusal:
            if not refusal.again or time.monotonic() > give_up:
                raise
            time.sleep(PAUSE_S)
