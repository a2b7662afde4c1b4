"""How long browsers may keep a file of a static app (contract, Deploy rules 4 and 7): for the edge,
which serves them, and for the object store, which keeps them. Text as nginx's configuration has
it."""
PAGE_AGE_S = 60
# Named by what is in them, so that one never changes.
_ASSETS, _ASSET_AGE_S = "assets/", 365 * 24 * 3600
PAGE = f"public, max-age={PAGE_AGE_S}, must-revalidate"
ASSET = f"public, max-age={_ASSET_AGE_S}, immutable"


def cache_control(path: str) -> str:
    """How long the file at this path of an app may be kept."""
    return ASSET if path.startswith(_ASSETS) else PAGE
