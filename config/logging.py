"""Log lines of every process: one line per event on stderr, UTC, `key=value` for what `extra`
carries, secrets masked.

Texts of guests and callers get into them. A control character in one is written as its escape, so
that nobody can begin a line of their own or move the cursor of whoever reads it; further lines, of
a traceback, are indented.

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

# C0, DEL, C1, the separators that some readers take for line ends, and marks that turn the order of
# letters.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """`text` with every control character in it as its escape: a line feed as `\\n`."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


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
        return escaped(super().formatMessage(record) + extra)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(super().formatStack(stack_info))

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


def _indented(text: str) -> str:
    return "\n".join(f"    {escaped(line)}" for line in text.split("\n"))


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
            # one line for every tick of every sweep, two for every look at the identity host
            **{
                name: {"level": "WARNING"}
                for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat", "httpx")
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
