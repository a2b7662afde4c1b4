"""When a signing key may go: not before the last token it signed has ended, or it is known to be
lost."""
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from services.accounts.tokens import LEEWAY


def blockers(
    kid: str, starts: Sequence[tuple[str, datetime]], live_service_tokens: Mapping[str, int], *,
    signing: str, user_jwt_s: int,
    present: datetime
) -> list[str]:
    """Why the key `kid` must not be removed yet, as clauses; `starts` are ids with the time each
    begins to sign.

    Empty for a key that nothing depends on. `live_service_tokens` counts by key id.
    """
    reasons = []
    if kid == signing:
        reasons.append("it signs; rotate first")
    later = [started for other, started in starts if other > kid and started <= present]
    if kid < signing and later:
        last_ends = min(later) + timedelta(seconds=user_jwt_s) + LEEWAY
        if last_ends > present:
            left_s = int((last_ends - present).total_seconds()) + 1
            reasons.append(f"user tokens that it signed are valid for up to {left_s} s")
    # Tokens minted before keys were recorded may be of any key.
    if count := live_service_tokens.get(kid, 0) + live_service_tokens.get("", 0):
        reasons.append(f"{count} service token{'s' if count > 1 else ''} that it signed would end")
    return reasons
