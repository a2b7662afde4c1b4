"""The object store, any that speaks S3: keys are written once, and nothing relies on conditional writes."""
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from config.settings import Settings

_PART_BYTES = 8 * 1024 * 1024
_SECONDS = 30


class StoreUnavailable(Exception):
    """The store did not take or give an object; trying again later may work."""


class ObjectStore:
    """One bucket. Files are streamed in parts, so memory does not grow with them."""

    def __init__(self, settings: Settings) -> None:
        self._bucket = settings.s3_bucket
        self._client = boto3.client(
            "s3",
            endpoint_url=settings.s3_url,
            aws_access_key_id=settings.s3_access_key,
            aws_secret_access_key=settings.s3_secret_key,
            region_name="us-east-1",
            # An address of our own on this host or network: never through a proxy of the environment.
            config=Config(
                proxies={}, connect_timeout=5, read_timeout=_SECONDS, retries={"max_attempts": 3},
                s3={"addressing_style": "path"}, request_checksum_calculation="when_required",
            ),
        )
        self._transfer = TransferConfig(multipart_chunksize=_PART_BYTES, max_concurrency=2)

    def put_once(self, key: str, path: Path) -> int:
        """Store a file under `key` unless it is there in that size already; returns its bytes. Raises
        StoreUnavailable."""
        size_bytes = path.stat().st_size
        if self.find_size(key) != size_bytes:
            try:
                self._client.upload_file(str(path), self._bucket, key, Config=self._transfer)
            except (BotoCoreError, ClientError, OSError) as error:
                raise StoreUnavailable(f"cannot store {key}: {type(error).__name__}") from error
        return size_bytes

    def find_size(self, key: str) -> int | None:
        """Bytes of an object; None if there is none. Raises StoreUnavailable."""
        try:
            return int(self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"])
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
                return None
            raise StoreUnavailable(f"cannot look for {key}: {error.response['Error'].get('Code')}") from error
        except BotoCoreError as error:
            raise StoreUnavailable(f"cannot look for {key}: {type(error).__name__}") from error
