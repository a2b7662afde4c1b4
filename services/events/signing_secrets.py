"""The secrets that webhooks are signed with, checked: a list, so that one can be changed while
receivers still look for the other (contract, Platform webhooks).
"""
import re
from dataclasses import dataclass

from config.settings import SettingsError

_VERSION = re.compile(r"(v[1-9]\d{0,2}):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Secret:
    """What a signature is made with, and the version that it stands under in the header."""

    version: str
    key: bytes


def parse_secrets(entries: tuple[str, ...]) -> tuple[Secret, ...]:
    """`v2:text` stands under v2; a text without a version under the number of its place. v1 comes
    first; it is always there, for receivers that look at nothing else. Raises SettingsError."""
    secrets = []
    for place, entry in enumerate(entries, 1):
        match = _VERSION.fullmatch(entry)
        version, text = match.groups() if match else (f"v{place}", entry)
        if not text:
            raise SettingsError(f"SVC_WEBHOOK_SECRETS holds no secret after {version}:.")
        secrets.append(Secret(version, text.encode()))
    if len({secret.version for secret in secrets}) < len(secrets):
        raise SettingsError("SVC_WEBHOOK_SECRETS names a version twice.")
    if secrets and not any(secret.version == "v1" for secret in secrets):
        raise SettingsError(
            "SVC_WEBHOOK_SECRETS must have a v1: the secret that receivers are to use.")
    return tuple(sorted(secrets, key=lambda secret: secret.version != "v1"))
