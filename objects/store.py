"""The object store, any that speaks S3: keys are written once, and nothing relies on conditional
writes."""
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from config.settings import Settings

_PART_BYTES = 8 * 1024 * 1024
# The least that the protocol allows: 10,000 of them are 50 GB, and a stream keeps one or two in
# memory.
_STREAM_PART_BYTES = 5 * 1024 * 1024
_PIECE_BYTES = 256 * 1024
_SECONDS = 30
# The most that the protocol allows.
_REMOVED_AT_ONCE = 1000


class StoreUnavailable(Exception):
    """The store did not take or give an object; trying again later may work."""


class ObjectMissing(Exception):
    """There is no object of this key."""


@dataclass(frozen=True)
class StoredObject:
    """An object by its key; `changed_at` is the store's own clock."""

    key: str
    size_bytes: int
    changed_at: datetime


def preload() -> None:
    """Load what a store consists of, most of it the description of S3, for processes that are
    forked from this one and have stores of their own."""
    import boto3
    from botocore.session import get_session

    session = get_session()
    boto3.setup_default_session(botocore_session=session)
    # Where each of 305 services is, by region: 7 MB that a store with an address does without.
    for partition in session.get_data("endpoints")["partitions"]:
        for name in set(partition["services"]) - {"s3"}:
            del partition["services"][name]
    _client("http://127.0.0.1", "nobody", "nothing", "")


def _client(url: str, access_key: str, secret_key: str, ca_file: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=access_key, aws_secret_access_key=secret_key,
        region_name="us-east-1", verify=ca_file or None,
        # An address of our own on this host or network: never through a proxy of the environment.
        config=Config(
            proxies={}, connect_timeout=5, read_timeout=_SECONDS, retries={"max_attempts": 3},
            s3={"addressing_style": "path"}, request_checksum_calculation="when_required",
        ),
    )


class ObjectStore:
    """One bucket. Content is streamed in parts, so memory does not grow with it."""

    def __init__(self, settings: Settings) -> None:
        # 30 MB and 0.2 s of CPU, which a process that never asks a store does without.
        from boto3.s3.transfer import TransferConfig

        self._bucket = settings.s3_bucket
        self._client = _client(settings.s3_url, settings.s3_access_key, settings.s3_secret_key,
                               settings.s3_ca_file)
        self._transfer = TransferConfig(multipart_chunksize=_PART_BYTES, max_concurrency=2)
        # Threads would read on, and keep what they read, faster than the store takes it.
        self._one_part = TransferConfig(multipart_threshold=_STREAM_PART_BYTES,
                                        multipart_chunksize=_STREAM_PART_BYTES, use_threads=False)

    def put_once(self, key: str, path: Path) -> int:
        """Store a file under `key` unless it is there in that size already; returns its bytes.
        Raises StoreUnavailable."""
        from boto3.exceptions import Boto3Error

        size_bytes = path.stat().st_size
        if self.find_size(key) != size_bytes:
            try:
                self._client.upload_file(str(path), self._bucket, key, Config=self._transfer)
            # The first is what it makes of the answer of a store that refuses.
            except (Boto3Error, BotoCoreError, ClientError, OSError) as error:
                raise StoreUnavailable(f"cannot store {key}: {type(error).__name__}") from error
        return size_bytes

    def put_stream(self, key: str, chunks: Iterable[bytes],
                   headers: Mapping[str, str] | None = None) -> int:
        """Store what `chunks` yields, holding one part in memory; returns its bytes. `headers` are
        boto3's names for what the object is to be served with.

        The object appears as a whole, at the end. After an error, those of `chunks` included, there
        is none, and no part of it. Raises StoreUnavailable.
        """
        source = _Source(chunks)
        try:
            self._client.upload_fileobj(source, self._bucket, key, Config=self._one_part,
                                        ExtraArgs=dict(headers or {}))
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"cannot store {key}: {type(error).__name__}") from error
        return source.taken_bytes

    def get_stream(self, key: str) -> Iterator[bytes]:
        """The content of an object, in pieces; raises ObjectMissing, StoreUnavailable (also
        halfway)."""
        try:
            body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
            with contextlib.closing(body):
                yield from body.iter_chunks(_PIECE_BYTES)
        except ClientError as error:
            if _status(error) == 404:
                raise ObjectMissing(key) from error
            raise StoreUnavailable(f"cannot read {key}: {type(error).__name__}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"cannot read {key}: {type(error).__name__}") from error

    def remove_all(self, prefix: str) -> None:
        """Remove the objects whose keys begin with `prefix`, half-stored ones too; raises
        StoreUnavailable."""
        try:
            keys = [stored.key for stored in self.list_objects(prefix)]
            for first in range(0, len(keys), _REMOVED_AT_ONCE):
                self._remove(keys[first:first + _REMOVED_AT_ONCE])
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"cannot remove {prefix}: {type(error).__name__}") from error
        self.give_up_uploads(prefix)

    def _remove(self, keys: list[str]) -> None:
        some = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            refused = self._client.delete_objects(Bucket=self._bucket, Delete=some).get("Errors")
        except ClientError:
            # Some stores do not know that call, or want it with a checksum of another kind.
            for key in keys:
                self._client.delete_object(Bucket=self._bucket, Key=key)
            return
        if refused:
            raise StoreUnavailable(f"cannot remove {refused[0]['Key']}: {refused[0].get('Code')}")

    def give_up_uploads(self, prefix: str, keep: Collection[str] = ()) -> None:
        """Remove what is half-stored under keys that begin with `prefix`, but for the uploads
        `keep`; raises StoreUnavailable."""
        try:
            for upload in self.list_uploads(prefix):
                if upload["UploadId"] not in keep:
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"])
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"cannot remove {prefix}: {type(error).__name__}") from error

    def list_uploads(self, prefix: str) -> list[dict[str, Any]]:
        """What is half-stored under keys that begin with `prefix`, as the store describes it;
        raises StoreUnavailable."""
        try:
            return list(
                self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=prefix).get(
                    "Uploads", ()
                )
            )
        except ClientError as error:
            if _status(error) == 404:  # so says rclone when there are none
                return []
            raise StoreUnavailable(f"cannot list {prefix}: {type(error).__name__}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"cannot list {prefix}: {type(error).__name__}") from error

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """Every complete object whose key begins with `prefix`, in the order of keys; raises
        StoreUnavailable."""
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(
                    Bucket=self._bucket, Prefix=prefix):
                for entry in page.get("Contents", ()):
                    yield StoredObject(entry["Key"], int(entry["Size"]), entry["LastModified"])
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"cannot list {prefix}: {type(error).__name__}") from error

    def list_folders(self, prefix: str) -> Iterator[str]:
        """The folders in the folder `prefix`, each with its `/`, however much is in them; raises
        StoreUnavailable."""
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(
                    Bucket=self._bucket, Prefix=prefix, Delimiter="/"):
                for entry in page.get("CommonPrefixes", ()):
                    yield entry["Prefix"]
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(f"cannot list {prefix}: {type(error).__name__}") from error

    def find_size(self, key: str) -> int | None:
        """Bytes of an object; None if there is none. Raises StoreUnavailable."""
        try:
            return int(self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"])
        except ClientError as error:
            if _status(error) == 404:
                return None
            raise StoreUnavailable(
                f"cannot look for {key}: {error.response['Error'].get('Code')}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"cannot look for {key}: {type(error).__name__}") from error


class _Source:
    """An iteration read like a file; counts what has been taken from it."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._kept = b""
        self.taken_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, fewer only at the end; all that is left without a size."""
        parts, missing = [self._kept], size - len(self._kept)
        self._kept = b""
        while size < 0 or missing > 0:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            parts.append(chunk)
            missing -= len(chunk)
        if size >= 0 and missing < 0:
            self._kept = parts[-1][missing:]
            parts[-1] = parts[-1][:missing]
        part = b"".join(parts)
        self.taken_bytes += len(part)
        return part


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
