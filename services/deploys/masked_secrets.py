"""Keeps the secrets of an app out of what it says, before anybody reads that."""
from config.settings import Settings
from services.deploys import variables

# A value that is shorter is in any text by chance.
_LEAST_CHARACTERS = 6


def masked(settings: Settings, app_id: str, text: str) -> str:
    """What an app has said, without those of its secrets that are long enough: the longest first,
    as one may be a part of another. Raises Unavailable."""
    for value in sorted(variables.list_secrets(settings, app_id), key=len, reverse=True):
        if len(value) >= _LEAST_CHARACTERS:
            text = text.replace(value, "***")
    return text
