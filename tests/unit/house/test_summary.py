"""What `make up` says at its end: where everything is, how its certificate is trusted, and commands
that can be pasted."""
import pytest

from bin.up import summary

VALUES = {
    "SVC_API_URL": "http://127.0.0.1:18080", "SVC_AUTH_URL": "http://127.0.0.1:18081",
    "SVC_SHELL_URL": "wss://shell.localhost:8443", "SVC_PREVIEW_DOMAIN": "preview.localhost",
    "SVC_EDGE_PORT": "8443", "SVC_FLOWER_PORT": "15555", "SVC_FLOWER_BASIC_AUTH": "me:secret",
    "SVC_CA_FILE": "/some/where/ca.pem",
}
EDGE = {"api": "https://localhost:8443", "identity": "https://auth.localhost:8443"}


def test_each_host_is_named_with_its_address_by_https_beside_the_plain_one():
    lines = [line.split() for line in summary(VALUES, EDGE).splitlines()]
    assert ["API", "http://127.0.0.1:18080", "https://localhost:8443"] in lines
    assert ["identity", "http://127.0.0.1:18081", "https://auth.localhost:8443"] in lines
    assert ["shell", "wss://shell.localhost:8443"] in lines
    assert ["previews", "https://<secret>.preview.localhost:8443"] in lines
    assert ["Flower", "http://127.0.0.1:15555", "(me:secret)"] in lines


def test_one_line_says_how_the_authority_is_trusted():
    [line] = [line for line in summary(VALUES, EDGE).splitlines() if "HTTPS" in line]
    assert "`curl --cacert /some/where/ca.pem`" in line
    assert "`certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n svc -i /some/where/ca.pem`" in line


def test_with_a_certificate_of_the_operator_nothing_has_to_be_trusted():
    text = summary(VALUES | {"SVC_TLS_CERT": "/etc/tls.pem"}, EDGE)
    assert "HTTPS" not in text and "certutil" not in text


@pytest.mark.parametrize("body", ["'{}'", """'{"cmd": "uname", "args": ["-a"]}'"""])
def test_the_commands_to_try_have_json_that_is_json(body):
    text = summary(VALUES, EDGE)
    assert f"-d {body}" in text and "{{" not in text
    assert "  . var/dev.env\n" in text
