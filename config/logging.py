"""Log lines of every process: one line per event on stderr, UTC, `key=value` for what `extra`
carries, secrets masked.

`configure()` is for our own processes; gunicorn takes `logging_config()` and Celery calls
`configure` from its `setup_logging` signal. Whoever runs the process (supervisor, journald) keeps
and rotates the lines.
"""
import logging
import logging.config
import re
import time
from typing import Any

# What a record carries anyway; everything else came in by `extra` and is printed.
_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
# API keys, bearer tokens, JWTs and passwords inside URLs: never useful in a log, always dangerous.
_SECRETS = re.compile(
    r"(svc_sk_[\w-]{5})[\w-]+|((?i:bearer) )[\w.~+/=-]+|\b(eyJ[\w-]{8})[\w-]+\.[\w-]+\.[\w-]+"
    r"|(://[^:/@\s]*:)[^@/\s]+(?=@)")


def masked(text: str) -> str:
    """`text` with every credential in it cut to its first characters."""
    return _SECRETS.sub(lambda match: next(group for group in match.groups() if group) + "***",
                        text)


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO nodeworker.handlers.lifecycle booted sandbox=abc
    took_ms=231`"""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatTime(self, record: logging.LogRecord,
                   datefmt: str | None = None) -> str:  # noqa: N802
        return f"{super().formatTime(record, datefmt)}.{int(record.msecs):03d}Z"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        extra = "".join(
            f" {name}={value}" for name, value in vars(record).items() if name not in _STANDARD)
        return super().formatMessage(record) + extra

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


def logging_config(level: str) -> dict[str, Any]:
    """Configuration for logging.config.dictConfig: everything to stderr, libraries no louder than
    INFO."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": LineFormatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"level": level, "handlers": ["stderr"]},
        "loggers": {
            "gunicorn.error": {"level": level, "propagate": True, "handlers": []},
            "gunicorn.access": {"level": level, "propagate": True, "handlers": []},
            **{
                name: {"level": "INFO"}
                for name in ("kombu", "amqp", "peewee", "urllib3", "werkzeug")
            },
            # one line for every tick of every sweep
            **{
                name: {"level": "WARNING"}
                for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat")
            },
            **{
                name: {"level": "WARNING"}
                for name in ("botocore", "boto3", "s3transfer", "pyroute2")
            },
        },
    }


def configure(level: str = "INFO") -> None:
    """Set up logging of this process; call once, first thing in `main`."""
    logging.config.dictConfig(logging_config(level))
