"""Celery options of every process, measured against what Redis does when it is slow or gone
(docs/architecture.md)."""
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.connection import parse_url

from config.settings import Settings

# A worker's socket waits in BRPOP; a producer's must not keep a request waiting for a broker that
# hangs.
WORKER_SOCKET_TIMEOUT_S = 5.0
PRODUCER_SOCKET_TIMEOUT_S = 1.0
# How long Redis lets a worker wait for a message before it answers that there is none; each answer
# costs an idle worker CPU (docs/decisions/0050). A message ends the wait at once.
WAIT_FOR_MESSAGE_S = 3


def celery_options(settings: Settings, *,
                   socket_timeout_s: float = WORKER_SOCKET_TIMEOUT_S) -> dict[str, Any]:
    """Options for a Celery app of ours.

    Messages are acknowledged early: an operation is a row with a lease, and the sweep announces it
    again, so the broker never has to redeliver. Publishing gives up within a second or so, and the
    relay sends what it left.
    """
    return {
        **broker(settings.redis_url),
        "result_backend": None,
        "task_ignore_result": True,
        "task_acks_late": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_default_queue": "control",
        "task_create_missing_queues": True,
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        # Each event is a message more. Flower asks the workers for them as long as it runs.
        "worker_send_task_events": False,
        "task_send_sent_event": False,
        "worker_enable_remote_control": True,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": 1.0,
        "broker_transport_options": {
            "visibility_timeout": 3600,
            "socket_timeout": socket_timeout_s,
            "socket_connect_timeout": 1.0,
            "socket_keepalive": True,
            "health_check_interval": 5,
            "polling_interval": WAIT_FOR_MESSAGE_S,
            "retry_on_timeout": False,
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.1,
        },
        "timezone": "UTC",
        "enable_utc": True,
    }


def broker(url: str) -> dict[str, Any]:
    """The options that name the broker. kombu speaks to a `rediss://` without options in plain
    text, so what TLS is to check is told apart from the URL, by default the server's certificate
    and name."""
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return {"broker_url": url}
    known: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    checks = {name: value for name, value in known.items() if name.startswith("ssl_")}
    others = [pair for pair in parse_qsl(parts.query) if not pair[0].startswith("ssl_")]
    return {"broker_url": parts._replace(query=urlencode(others)).geturl(),
            "broker_use_ssl": {"ssl_cert_reqs": "required", "ssl_check_hostname": True, **checks}}
