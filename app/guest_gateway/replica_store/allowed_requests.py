"""Decides which requests for the object store a guest may make: those of a replica, on keys below
its own prefix. Pure.

What is not in the table is refused: buckets, versions, copies, access rules, lists without a
prefix. Nothing of a request goes on but what is named here.
"""
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from services.errors import Forbidden, InvalidRequest

# What one request may store, and what one that says something in XML may have.
OBJECT_MOST_BYTES, TEXT_MOST_BYTES = 1024 ** 3, 2 * 1024 * 1024
_KEY_MOST_BYTES, _KEYS_MOST = 1024, 1000
# An object has a key, and may have a version and three more, each with its end.
_TAGS_MOST = 12 * _KEYS_MOST + 16
_DECLARATION = b'<?xml version="1.0" encoding="UTF-8"?>'
# Parameters that must be there, and those that may be, by method and whether there is a key.
_LIST = frozenset({"prefix", "delimiter", "max-keys", "continuation-token", "start-after",
                   "encoding-type", "fetch-owner"})
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Rule:
    method: str
    of_key: bool
    must: frozenset[str] = _NONE
    may: frozenset[str] = _NONE
    body_most_bytes: int = 0


_RULES = (
    _Rule("GET", False, frozenset({"list-type"}), _LIST),
    _Rule("POST", False, frozenset({"delete"}), body_most_bytes=TEXT_MOST_BYTES),
    _Rule("GET", True),
    _Rule("HEAD", True),
    _Rule("PUT", True, body_most_bytes=OBJECT_MOST_BYTES),
    _Rule("DELETE", True),
    _Rule("POST", True, frozenset({"uploads"})),
    _Rule("PUT", True, frozenset({"partNumber", "uploadId"}), body_most_bytes=OBJECT_MOST_BYTES),
    _Rule("POST", True, frozenset({"uploadId"}), body_most_bytes=TEXT_MOST_BYTES),
    _Rule("DELETE", True, frozenset({"uploadId"})),
)
# Of a request's headers; the digest of the body, its length and the time are made anew.
_ON = re.compile(r"content-type|content-md5|range|if-(none-)?match|if-(un)?modified-since"
                 r"|x-amz-((sdk-)?checksum|meta)-[a-z0-9-]+", re.ASCII)
_DROPPED = frozenset({"x-amz-date", "x-amz-content-sha256", "x-amz-user-agent"})


@dataclass(frozen=True)
class AllowedRequest:
    """A request that may be made: what is sent on, but for its body, of which there may be
    `body_most_bytes`. A batch of deletes is judged by its body, see `check_batch`."""

    method: str
    key: str
    parameters: dict[str, str]
    headers: dict[str, str]
    body_most_bytes: int

    @property
    def is_batch(self) -> bool:
        """True if the body says which objects to delete."""
        return not self.key and self.method == "POST"

    @property
    def stores(self) -> bool:
        """True if the body is to be stored."""
        return self.method == "PUT"

    @property
    def begins_upload(self) -> bool:
        """True if an object in parts is begun."""
        return self.method == "POST" and "uploads" in self.parameters


def judge(method: str, key: str, parameters: Mapping[str, str], headers: Mapping[str, str],
          prefix: str) -> AllowedRequest:
    """The operation that a request with a decoded key (empty: the bucket itself) is, for a guest of
    `prefix`; raises Forbidden."""
    # Which call it was made with, that the clients of one family add.
    given = {name: value for name, value in parameters.items() if name != "x-id"}
    rule = next((rule for rule in _RULES if rule.method == method and rule.of_key == bool(key)
                 and rule.must <= set(given) <= rule.must | rule.may), None)
    if rule is None:
        raise Forbidden("This is not offered here.")
    if key:
        check_key(key, prefix)
    elif method == "GET":
        if given["list-type"] != "2" or given.get("delimiter", "/") != "/":
            raise Forbidden("This list is not offered here.")
        asked = given.get("prefix", "")
        # Of what a key begins with, the last part may be any.
        check_key(asked if not asked.endswith("/") else f"{asked}x", prefix)
    passed = {}
    for name, value in headers.items():
        name = name.lower()
        if _ON.fullmatch(name):
            passed[name] = value
        elif name.startswith("x-amz-") and name not in _DROPPED:
            raise Forbidden(f"The header {name[:60]} is not taken.")
    return AllowedRequest(method, key, given, passed, rule.body_most_bytes)


def check_key(key: str, prefix: str) -> None:
    """Raises Forbidden unless a key is below `prefix`, whoever reads it: as a path, too."""
    if (not key.startswith(prefix) or len(key.encode()) > _KEY_MOST_BYTES or not key.isprintable()
            or "\\" in key or any(part in ("", ".", "..") for part in key.split("/"))):
        raise Forbidden("This is not below the prefix of the key.")


def check_batch(body: bytes, prefix: str) -> None:
    """Raises Forbidden if a batch of deletes has a key that is not below `prefix`, InvalidRequest
    if it cannot be read."""
    # Other encodings among them, which the store could read in another way than we do.
    if b"<!" in body or b"<?" in body.removeprefix(_DECLARATION):
        raise InvalidRequest("The body has a declaration.")
    if body.count(b"<") > _TAGS_MOST:  # which would take others' time to be read
        raise InvalidRequest("The body has too many elements.")
    try:
        root = ElementTree.fromstring(body.decode())
    except (ElementTree.ParseError, ValueError):
        raise InvalidRequest("The body is not XML.") from None
    entries = [entry for entry in root.iter() if entry.tag.rpartition("}")[2] == "Key"]
    if any(len(entry) for entry in entries):
        raise InvalidRequest("A key of the body is not text alone.")
    keys = [entry.text or "" for entry in entries]
    if not keys or len(keys) > _KEYS_MOST:
        raise InvalidRequest(f"The body has {len(keys)} keys.")
    for key in keys:
        check_key(key, prefix)
