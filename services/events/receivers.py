"""Who is told of events and what with: the webhook settings, checked.

A receiver is known by a name in rows, messages and logs, because its URL may hold a secret. Its
name follows from the URL, so a changed URL is another receiver.
"""
import hashlib
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from config.settings import Settings, SettingsError
from services.events.signing_secrets import Secret, parse_secrets


@dataclass(frozen=True)
class Receiver:
    """Where events are posted; `target` is the path with its query."""

    name: str
    url: str
    host: str
    port: int
    tls: bool
    target: str
    authority: str


@dataclass(frozen=True)
class WebhookOptions:
    """The webhook settings of a sender."""

    receivers: tuple[Receiver, ...]
    secrets: tuple[Secret, ...]
    waits_s: tuple[float, ...]
    timeout_s: float
    slots: int


def webhook_options(settings: Settings) -> WebhookOptions:
    """The settings, checked; raises SettingsError with one sentence on the first that is wrong."""
    receivers = tuple(dict.fromkeys(_receiver(url) for url in settings.webhook_receiver_url))
    secrets = parse_secrets(settings.webhook_secrets)
    if receivers and not secrets:
        raise SettingsError(
            "SVC_WEBHOOK_SECRETS must hold a secret when SVC_WEBHOOK_RECEIVER_URL is set.")
    waits = settings.webhook_waits
    if not waits or not all(0 <= wait <= 86_400 for wait in waits):
        raise SettingsError(
            "SVC_WEBHOOK_WAITS must be one or more numbers of seconds from 0 to 86400.")
    if not 0 < settings.webhook_timeout_s <= 600 or settings.webhook_slots < 1:
        raise SettingsError(
            "SVC_WEBHOOK_TIMEOUT_S must be from 0 to 600 and SVC_WEBHOOK_SLOTS at least 1.")
    return WebhookOptions(receivers, secrets, waits, settings.webhook_timeout_s,
                          settings.webhook_slots)


def _receiver(url: str) -> Receiver:
    problem = (
        "Each SVC_WEBHOOK_RECEIVER_URL must be http:// or https:// with a host, without user or"
        " fragment."
    )
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        (parts.hostname or "").encode("idna")
    except (ValueError, KeyError):
        raise SettingsError(problem) from None
    if not parts.hostname or "@" in parts.netloc or parts.fragment or not re.fullmatch(
            r"[!-~]+", url):
        raise SettingsError(problem)
    return Receiver(
        name=f"{parts.netloc}#{hashlib.sha256(url.encode()).hexdigest()[:8]}",
        url=url,
        host=parts.hostname,
        port=port,
        tls=parts.scheme == "https",
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        authority=parts.netloc,
    )
