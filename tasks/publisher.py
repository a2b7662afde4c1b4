"""Hands messages to the broker, quickly or not at all; implements `services.protocols.Queue`."""
from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from config.celery import celery_options
from config.settings import Settings
from services.protocols import QueueUnavailable


class CeleryQueue:
    """Publishes by job name; the function behind a name is not known here."""

    def __init__(self, settings: Settings) -> None:
        self._app = Celery("svc-producer", set_as_current=False)
        self._app.conf.update(celery_options(settings))

    def publish(
        self, queue: str, job: str, payload: Mapping[str, Any], *, expires_s: float | None = None
    ) -> None:
        """Send one message; a tick that is not taken within `expires_s` seconds is dropped. Raises QueueUnavailable."""
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
            raise QueueUnavailable(type(error).__name__) from error
