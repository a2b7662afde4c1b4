"""Signatures of S3 requests, against those that botocore makes."""
from datetime import datetime, timedelta, timezone

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from app.guest_gateway.replica_store.signature import (
    canonical_query,
    decode,
    parse_query,
    read_signature,
)
from services.errors import Forbidden, InvalidRequest

HOST = "http://gateway:8790"


def made(method="PUT", path="/replicas/a%20b/%C3%A9", body=b"text", headers=()):
    request = AWSRequest(method, HOST + path, dict(headers), body)
    request.headers["Host"] = "gateway:8790"
    S3SigV4Auth(Credentials("key", "secret"), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def read(headers, method="PUT", path="/replicas/a%20b/%C3%A9", query="", later=timedelta()):
    return read_signature(method, decode(path), parse_query(query), headers.items(),
                          datetime.now(timezone.utc) + later)


@pytest.mark.parametrize(("method", "path", "query"), [
    ("PUT", "/replicas/a%20b/%C3%A9", ""), ("GET", "/replicas", "list-type=2&prefix=a%2Fb"),
    ("POST", "/replicas/x", "uploads="), ("GET", "/replicas", "prefix=a%2Bb%20c&list-type=2")])
def test_what_a_secret_made_is_known(method, path, query):
    headers = made(method, f"{path}?{query}" if query else path, headers={"X-Amz-Meta-A": "b  c"})
    signature = read(headers, method, path, query)
    assert signature.key_id == "key"
    assert signature.is_by(["other", "secret"]) and not signature.is_by(["other"])
    assert not read(headers, "DELETE", path, query).is_by(["secret"])
    assert not read(headers, method, f"{path}x", query).is_by(["secret"])
    assert not read(headers, method, path, f"{query}&more=1".lstrip("&")).is_by(["secret"])


def test_another_encoding_of_the_same_address_has_the_same_signature():
    headers = made()
    assert read(headers, path="/replicas/a%20b/%c3%a9").is_by(["secret"])
    assert read(headers, path="/%72eplicas/a%20b/%C3%A9").is_by(["secret"])


def test_it_holds_for_a_quarter_of_an_hour():
    for minutes, is_good in ((-16, False), (-14, True), (14, True), (16, False)):
        try:
            assert read(made(), later=timedelta(minutes=minutes)).is_by(["secret"]) and is_good
        except Forbidden:
            assert not is_good


@pytest.mark.parametrize("change", [
    {"Authorization": ""}, {"Authorization": "AWS4-HMAC-SHA256 nothing"}, {"X-Amz-Date": ""},
    {"X-Amz-Date": "20260101T0000Z"}, {"X-Amz-Acl": "public-read"},
    {"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"},
    {"X-Amz-Content-SHA256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"}])
def test_what_is_not_wholly_signed_is_refused(change):
    with pytest.raises(Forbidden):
        read({**made(), **change})


@pytest.mark.parametrize("service", ["ec2", "sts"])
def test_a_signature_for_another_service_is_none(service):
    headers = made()
    headers["Authorization"] = headers["Authorization"].replace("/s3/", f"/{service}/")
    with pytest.raises(Forbidden):
        read(headers)


def test_queries():
    assert parse_query("b=2&a=x%2Fy&c") == {"a": "x/y", "b": "2", "c": ""}
    assert canonical_query({"b": "2", "a": "x/y ~", "c": ""}) == "a=x%2Fy%20~&b=2&c="
    for broken in ("a=1&a=2", "a=%ff"):
        with pytest.raises(InvalidRequest):
            parse_query(broken)
