"""Keeps the lease of an operation alive while its handler works."""
import logging
import threading
from types import TracebackType

from models.database import DatabaseFailed, connection
from services.operations.claims import Claim, LeaseLost, renew

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Context manager: renews at a third of the lease from a thread of its own.

    A lost lease does not stop the handler: the driver's lock on the host keeps a second one out,
    and `finish` refuses the result. A database that is away is tried again at each beat.
    """

    def __init__(self, claimed: Claim, lease_s: float) -> None:
        self._claimed = claimed
        self._lease_s = lease_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"lease-{claimed.operation_id}",
                                        daemon=True)

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
                    renew(self._claimed, self._lease_s)
            except LeaseLost:
                log.warning("lost the lease of operation %s", self._claimed.operation_id)
                return
            except DatabaseFailed as error:
                log.warning("cannot renew operation %s: %s", self._claimed.operation_id,
                            type(error).__name__)
