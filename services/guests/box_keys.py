"""The keys of the box (`SVC_GUEST_SECRET`), from which the secrets of sandboxes are made.

They may be several, newest first and separated by commas: the first makes secrets, each is
believed, as secrets stay in the memory of sandboxes.
"""
from config.settings import Settings, SettingsError


def keys_of_box(settings: Settings) -> list[bytes]:
    """The keys that secrets of sandboxes are made from, newest first; raises SettingsError."""
    keys = [key.strip().encode() for key in settings.guest_secret.split(",") if key.strip()]
    if not keys:
        raise SettingsError(
            "SVC_GUEST_SECRET must be set: it makes the secrets of sandboxes."
            " See config/example.env.")
    return keys
