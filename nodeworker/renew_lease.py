"""Keeps the lease of an operation, or of a deploy's run, alive while somebody works on it."""
import logging
import threading
from collections.abc import Callable
from types import TracebackType

from models.database import DatabaseFailed, connection
from services.operations.claims import LeaseLost

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Context manager: renews at a third of the lease from a thread of its own.

    A lost lease does not stop the handler: the driver's lock on the host keeps a second one out,
    and `finish` refuses the result. A database that is away is tried again at each beat.
    """

    def __init__(self, renew: Callable[[], None], lease_s: float, of: str) -> None:
        """`renew` lengthens the lease or raises LeaseLost; `of` says in words what it is of."""
        self._renew_lease = renew
        self._lease_s = lease_s
        self._of = of
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease of {of}", daemon=True)

    def __enter__(self) -> "LeaseKeeper":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._done.wait(self._lease_s / 3):
            try:
                with connection():
                    self._renew_lease()
            except LeaseLost:
                # Who has ended the work in this moment has lost nothing, and leaves before long.
                if not self._done.wait(self._lease_s / 3):
                    log.warning("lost the lease of %s", self._of)
                return
            except DatabaseFailed as error:
                log.warning("cannot renew the lease of %s: %s", self._of, type(error).__name__)
