"""Says which names an app may have: a label of a host name that is nobody else's."""
import re

from services.errors import InvalidRequest

SLUG_MOST = 63
_SLUG = re.compile(r"[a-z0-9](-?[a-z0-9]){0,62}", re.ASCII)
# Hosts of ours, or names that a visitor would take for ours.
RESERVED = frozenset({
    "admin", "api", "app", "apps", "auth", "console", "dashboard", "docs", "help", "identity",
    "internal", "login", "mail", "preview", "shell", "smtp", "static", "status", "support", "www",
})


def check_slug(slug: str) -> str:
    """`slug` itself; raises InvalidRequest unless an app may be called so."""
    if len(slug) > SLUG_MOST or not _SLUG.fullmatch(slug):
        raise InvalidRequest(
            "slug must be 1 to 63 of a-z, 0-9 and single hyphens, neither first nor last")
    if slug in RESERVED:
        raise InvalidRequest(f"the slug {slug} is reserved")
    return slug
