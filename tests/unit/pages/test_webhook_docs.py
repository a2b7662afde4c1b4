"""docs/webhooks.md says what is so: the worked example by independent code, the types, the fields,
the settings."""
import dataclasses
import hashlib
import re
import shutil
import subprocess

import pytest

from bin.stack.site import ROOT
from config.settings import Settings
from sdk.webhooks import verify
from services.events.signature import sign
from services.events.signing_secrets import parse_secrets
from services.events.types import Boot, EventData, EventType, StopReason

TEXT = (ROOT / "docs" / "webhooks.md").read_text()


def example(name):
    found, = re.findall(rf"^{name} +(.+)$", TEXT, re.MULTILINE)
    return found


def test_the_example_by_the_definition_of_hmac():
    """RFC 2104 with nothing but a hash function."""
    key = example("secret").encode().ljust(64, b"\0")
    message = f"{example('timestamp')}.{example('body')}".encode()
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key) + message).digest()
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key) + inner).hexdigest()
    assert example("signature") == f"v1={outer}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl program is not installed")
def test_the_example_by_the_shell_line():
    line, = re.findall(r"^printf .+$", TEXT, re.MULTILINE)
    names = {name: example(name) for name in ("secret", "timestamp", "body")}
    answer = subprocess.run(["sh", "-c", line], env={"PATH": "/usr/bin:/bin", **names}, text=True,
                            capture_output=True, check=True)
    assert example("signature") == f"v1={answer.stdout.split()[-1]}"


def test_the_example_is_what_we_send_and_what_the_sdk_accepts():
    body, timestamp = example("body").encode(), int(example("timestamp"))
    assert sign(parse_secrets((example("secret"),)), timestamp, body) == example("signature")
    headers = {
        "X-Svc-Webhook-Timestamp": str(timestamp), "X-Svc-Webhook-Signature": example("signature")
    }
    event = verify(example("secret"), headers, body, now=timestamp + 10)
    assert event.type == EventType.SANDBOX_STARTED
    assert set(event.data) == fields_of(EventType.SANDBOX_STARTED)


def fields_of(kind):
    data, = [found for found in subclasses(EventData) if getattr(found, "TYPE", None) == kind]
    placeholders = {field.name: None for field in dataclasses.fields(data)}
    return set(data(**placeholders).to_json())


def subclasses(kind):
    return {found for child in kind.__subclasses__() for found in {child} | subclasses(child)}


@pytest.mark.parametrize("kind", list(EventType))
def test_every_type_is_described_with_all_its_fields(kind):
    rows = dict(re.findall(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]+) \|$", TEXT, re.MULTILINE))
    described = (
        rows[EventType.SNAPSHOT_RECORDED]
        if rows[kind.value].strip() == "the same"
        else rows[kind.value]
    )
    named = set(re.findall(r"`(\w+)`", described)) - {value.value for value in (*Boot, *StopReason)}
    assert named == fields_of(kind)


def test_every_value_of_boot_and_reason_is_named():
    assert all(f"`{value.value}`" in TEXT for value in (*Boot, *StopReason))


def test_every_setting_named_exists_and_the_waits_are_the_defaults():
    known = {f"SVC_{field.name.upper()}" for field in dataclasses.fields(Settings)}
    assert set(re.findall(r"SVC_[A-Z_]+", TEXT)) <= known
    assert "SVC_WEBHOOK_WAITS=1,5,20" in TEXT and Settings().webhook_waits == (1, 5, 20)
    assert Settings().webhook_timeout_s == 10
