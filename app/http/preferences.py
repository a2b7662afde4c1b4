"""What a client prefers (RFC 7240): to be answered only once what it asked for is done.

`Prefer: wait=N` is taken by routes that make a sandbox (`app.api.sandboxes.await_boot`). A
preference that cannot be understood or followed is left aside, as the RFC has it: then the answer
comes at once, without `Preference-Applied`.
"""
import re

from flask import request
from werkzeug.http import parse_list_header

# How long a client may say that a request is to wait, for a status or a boot: a thread is held
# meanwhile, and many a proxy before us gives up after as long.
ASKED_MAX_S = 60
HEADER, APPLIED = "Prefer", "Preference-Applied"
_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,9})"?\s*(?:;.*)?', re.ASCII | re.IGNORECASE)


def current_wait_s() -> int | None:
    """How many seconds the client of this request would wait, at most 60; None if it says nothing
    of it that can be understood. Of several the first counts."""
    for preference in parse_list_header(",".join(request.headers.getlist(HEADER))):
        if re.match(r"wait\s*(?:[=;]|$)", preference, re.ASCII | re.IGNORECASE):
            said = _WAIT.fullmatch(preference)
            return min(int(said[1]), ASKED_MAX_S) if said else None
    return None
