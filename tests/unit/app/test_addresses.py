"""Addresses of callbacks and repositories: which the guest connects to, and which the API takes at
all."""
import ipaddress

import pytest
from marshmallow import ValidationError

from app.schemas.addresses import BOOTSTRAP_MAX_BYTES, Bootstrap, GitUrl
from guest.agentserver.addresses import is_public
from nodeworker.network.ruleset import BLOCKED_NETWORKS

PUBLIC = [
    "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "169.253.255.255",
    "172.15.255.255", "172.32.0.0", "192.167.255.255", "198.20.0.0", "223.255.255.255",
    "2606:4700:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"
]
SPECIAL = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.0.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::",
    "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::7f00:1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2001::1", "2001:db8::1", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "3fff::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1"
]
ODD = [
    "127.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.1.", "1.1.1", "",
    "localhost", "1.1.1.1/8"
]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address(address):
    assert is_public(address)


@pytest.mark.parametrize("address", [*SPECIAL, *ODD])
def test_everything_else_is_not(address):
    assert not is_public(address)


def test_the_guests_rule_and_the_hosts_firewall_block_the_same():
    for network in map(ipaddress.IPv4Network, BLOCKED_NETWORKS):
        assert not is_public(str(network[0])) and not is_public(str(network[-1])), network


def bootstrap(**content):
    return Bootstrap().deserialize(content)


@pytest.mark.parametrize("url", [
    "https://x.example",
    "http://x.example:8080/hook?session=5",
    "https://1.1.1.1/",
    "https://[2606:4700::1]:8443/x",
    "https://xn--bcher-kva.example/",
    "http://intranet/",
    "https://a-b.c_d.example./",
])
def test_a_callback_address_that_is_taken(url):
    content = {
        "callbackUrl": url, "callbackToken": "t", "more": {"is": ["passed", "on"]},
        "readinessPort": 4096
    }
    assert bootstrap(**content) == content


@pytest.mark.parametrize("url", [
    "",
    "x.example",
    "ftp://x.example/",
    "file:///etc/passwd",
    "https://",
    "https:///path",
    "https://me:you@x.example/",
    "https://me@x.example/",
    "https://@x.example/",
    "https://x.example/#part",
    "https://x.example:99999/",
    "https://x.example:port/",
    "https://x example/",
    "https://x.example/\n",
    "\thttps://x.example/",
    "https://ü.example/",
    "https:\\\\x.example",
    "https://x.example\\@127.0.0.1/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://a.localhost/",
    "https://[fe80::1%25eth0]/",
    "https://[::1/",
    "https://[vF.x]/",
    "https://-x.example/",
    "http://%31%32%37.0.0.1/",
    5,
    None,
    *(f"http://[{address}]/" if ":" in address else f"http://{address}/"
      for address in (*SPECIAL, *ODD[:6])),
])
def test_a_callback_address_that_is_not(url):
    with pytest.raises(ValidationError) as refusal:
        bootstrap(callbackUrl=url, callbackToken="hunter2")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("content", [
    {"callbackUrl": "https://x.example"},
    {"callbackToken": "hunter2"},
    *({"callbackUrl": "https://x.example", "callbackToken": token}
      for token in ("", "hunter2 ", "hunter2\r\nX: y", "hunter2ü", "hunter2" * 1000, 5,
                    ["hunter2"])),
    {"big": "hunter2" * BOOTSTRAP_MAX_BYTES},
    {"readinessPort": 0},
    {"readinessPort": "80"},
    {"readinessPort": True},
])
def test_a_bootstrap_that_is_not_taken_is_not_quoted(content):
    with pytest.raises(ValidationError) as refusal:
        bootstrap(**content)
    assert "hunter2" not in str(refusal.value)


def test_a_bootstrap_without_callbacks_is_one():
    assert bootstrap() == {} and bootstrap(callbackUrl=None, other=1) == {"other": 1}


@pytest.mark.parametrize("url", [
    "https://git.example/x.git",
    "http://git.example:3000/a/b",
    "ssh://git@git.example/x",
    "git://git.example/x",
    "git@git.example:a/b.git",
    "me@git.example:x",
    "ssh://git.example:22/~me/x",
])
def test_a_repository_that_is_taken(url):
    assert GitUrl().deserialize(url) == url


@pytest.mark.parametrize("url", [
    "https://me:hunter2@git.example/x",
    "https://hunter2@git.example/x",
    "ssh://git:hunter2@git.example/x",
    "https://git.example/x?token=hunter2",
    "https://git.example/x#hunter2",
    "me:hunter2@git.example:a/b",
    "file:///srv/x",
    "/srv/x",
    "../x",
    "ext::sh -c hunter2",
    "https://",
    "https://git example/x",
    "-u:x",
    "",
    5,
    "javascript:hunter2//x",
    "https://git.example/" + "x" * 2048,
])
def test_a_repository_that_is_not(url):
    with pytest.raises(ValidationError) as refusal:
        GitUrl().deserialize(url)
    assert "hunter2" not in str(refusal.value)
