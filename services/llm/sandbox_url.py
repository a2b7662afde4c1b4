"""The address at which a sandbox finds its LLM proxy: `http://<gateway>/s/<secret>`.

The secret is `<sandbox id>.<MAC>`, made anew from a key of the box each time, so nothing is stored.
"""
import hashlib
import hmac

from config.guest_gateway import URL
from config.settings import Settings
from services.guests.box_keys import keys_of_box

# Bound to its use, so that no other MAC made from the key is ever a sandbox's secret.
_PURPOSE = b"llm-proxy:"
_MAC_CHARACTERS = 32


def is_configured(settings: Settings) -> bool:
    """True if there is an LLM proxy; what the processes besides the guest gateway know of it."""
    return bool(settings.llm_config)


def check_key(settings: Settings) -> None:
    """Raises SettingsError if there is an LLM proxy but no key to make secrets from."""
    if is_configured(settings):
        keys_of_box(settings)


def proxy_url(settings: Settings, sandbox_id: str) -> str | None:
    """The base URL of a sandbox's LLM proxy; None if there is none. `/v1/x` and `/x` work below
    it. Raises SettingsError if there is no key."""
    if not is_configured(settings):
        return None
    return f"{URL}/s/{secret_of(settings, sandbox_id)}"


def secret_of(settings: Settings, sandbox_id: str) -> str:
    """The secret of a sandbox; raises SettingsError."""
    return f"{sandbox_id}.{_mac(keys_of_box(settings)[0], sandbox_id)}"


def sandbox_of(settings: Settings, secret: str) -> str | None:
    """The id of the sandbox that a secret was made for; None if we never made it."""
    sandbox_id, _, mac = secret.rpartition(".")
    given, found = mac.encode("utf-8", "replace"), False
    for key in keys_of_box(settings):
        found |= hmac.compare_digest(_mac(key, sandbox_id).encode(), given)
    return sandbox_id if found else None


def _mac(key: bytes, sandbox_id: str) -> str:
    digest = hmac.new(key, _PURPOSE + sandbox_id.encode("utf-8", "replace"), hashlib.sha256)
    return digest.hexdigest()[:_MAC_CHARACTERS]
