"""Hands messages to the broker, quickly or not at all; implements `services.protocols.Queue`."""
import time
from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from config.celery import PRODUCER_SOCKET_TIMEOUT_S, celery_options
from config.settings import Settings
from services.protocols import QueueUnavailable

# After a failure the broker is left alone for this long (s), so that requests do not each wait for
# it in turn.
_REST_S = 1.0


class CeleryQueue:
    """Publishes by job name; the function behind a name is not known here. Safe to share between
    threads."""

    def __init__(self, settings: Settings) -> None:
        self._app = Celery("svc-producer", set_as_current=False)
        self._app.conf.update(celery_options(settings, socket_timeout_s=PRODUCER_SOCKET_TIMEOUT_S))
        self._resting_until = 0.0

    def publish(
        self, queue: str, job: str, payload: Mapping[str, Any], *, expires_s: float | None = None
    ) -> None:
        """Send one message; a tick that is not taken within `expires_s` seconds is dropped. Raises
        QueueUnavailable."""
        if time.monotonic() < self._resting_until:
            raise QueueUnavailable("the broker failed a moment ago")
        try:
            self._app.send_task(
                job,
                kwargs=dict(payload),
                queue=queue,
                expires=expires_s,
                ignore_result=True,
                retry=False,
            )
        except (OperationalError, RedisError, OSError) as error:
            self._resting_until = time.monotonic() + _REST_S
            raise QueueUnavailable(type(error).__name__) from error
