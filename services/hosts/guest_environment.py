"""Says what the processes of a guest find in their environment: its service, commands and shells
(contract, Exec 2), and how many variables an owner may give it.

What the service gives comes first; a variable of the owner wins over it, and one of the call over
both.
"""
from collections.abc import Mapping

from config.settings import Settings
from services.llm.sandbox_url import proxy_url

MAX_VARIABLES, MAX_BYTES = 256, 64 * 1024


def environment(settings: Settings, sandbox_id: str, own: Mapping[str, str],
                asked: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a process: those that the service gives, the sandbox's `own`, and those that
    were `asked` for with this call. Raises SettingsError if there is an LLM proxy but no key."""
    return _given(settings, sandbox_id) | dict(own) | dict(asked or {})


def find_excess(own: Mapping[str, str]) -> str | None:
    """Which limit the variables of an owner are beyond, in words; None if they are within both."""
    if len(own) > MAX_VARIABLES:
        return f"at most {MAX_VARIABLES} variables"
    if sum(len(name.encode()) + len(text.encode()) for name, text in own.items()) > MAX_BYTES:
        return f"at most {MAX_BYTES} bytes in all"
    return None


def _given(settings: Settings, sandbox_id: str) -> dict[str, str]:
    """What the service gives to every process of a sandbox."""
    url = proxy_url(settings, sandbox_id)
    return {} if url is None else {"SVC_AI_URL": url, "SVC_MEDIA_URL": url}
