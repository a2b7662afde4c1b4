"""Settings: each is documented in config/example.env, with its default, and a bad value is named at
once."""
import dataclasses
from pathlib import Path

import pytest

from bin.stack.site import ROOT, Site
from config.env_file import read_env
from config.settings import Settings, SettingsError, load

FIELDS = {f"SVC_{field.name.upper()}": field for field in dataclasses.fields(Settings)}
EXAMPLE = (ROOT / "config" / "example.env").read_text()


def documented():
    """Variable -> value of every line of example.env; a leading `#` marks a default that is left as
    it is."""
    lines = [line.removeprefix("#") for line in EXAMPLE.splitlines()]
    return dict(line.split("=", 1) for line in lines if line.startswith("SVC_") and "=" in line)


def test_every_setting_is_documented_and_nothing_else():
    assert set(documented()) == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_the_documented_value_is_the_default(name):
    documented_value, default = (getattr(load(values), FIELDS[name].name)
                                 for values in (documented(), {}))
    assert documented_value == (default.absolute() if isinstance(default, Path) else default)


@pytest.mark.parametrize("name", FIELDS)
def test_each_setting_is_explained_by_a_comment_above_it(name):
    lines = EXAMPLE.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"#{name}="))
    assert lines[at - 1].startswith("# "), f"{name} has no comment in config/example.env"


@pytest.mark.parametrize(
    "name", [name for name, field in FIELDS.items() if field.type in (int, float, bool)])
def test_a_malformed_number_or_flag_is_refused_by_name(name):
    with pytest.raises(SettingsError, match=name):
        load({name: "a banana"})


@pytest.mark.parametrize(("name", "value", "told"), [
    ("SVC_IDLE_SWEEP_S", "nan", "expected a finite number"),
    ("SVC_WEBHOOK_TIMEOUT_S", "inf", "expected a finite number"),
    ("SVC_WEBHOOK_WAITS", "1,nan", "expected a finite number"),
    ("SVC_SLOT_NETWORK", "banana", "SVC_SLOT_NETWORK is not valid"),
    ("SVC_SLOT_NETWORK", "10.201.0.1/16", "SVC_SLOT_NETWORK is not valid"),
    ("SVC_DRIVER", "xen", "one of qemu, simulated"),
    ("SVC_ACCELERATOR", "kvmm", "one of auto, kvm, tcg"),
    ("SVC_MACHINE", "pc", "one of auto, microvm, q35"),
    ("SVC_KEPT_MACHINES", "-1", "must not be negative"),
    ("SVC_API_WORKERS", "0", "must be above 0"),
    ("SVC_DB_POOL_SIZE", "0", "must be above 0"),
    ("SVC_RECONCILE_S", "0", "must be above 0"),
    ("SVC_NPM_CACHE_MB", "0", "must be above 0"),
    ("SVC_EDGE_PORT", "65536", "must be a port"),
    ("SVC_FLOWER_PORT", "0", "must be a port"),
    ("SVC_AGENT_PORTS", "65000,65536", "must be two ports"),
    ("SVC_STATIC_COLLECT_S", "60", "must be above 60"),
])
def test_a_value_that_no_process_can_work_with_is_refused_by_name(name, value, told):
    with pytest.raises(SettingsError, match=name) as refused:
        load({name: value})
    assert told in str(refused.value)


@pytest.mark.parametrize("value", ["20000", "3,2", "1,2,3", "a,b"])
def test_a_malformed_port_range_is_refused_by_name(value):
    with pytest.raises(SettingsError, match="SVC_HOST_PORTS"):
        load({"SVC_HOST_PORTS": value})


@pytest.mark.parametrize("value", ["20000", "3,2", "29000,30000", "10000,40000", "20500,20600"])
def test_the_agents_have_a_port_range_of_their_own(value):
    with pytest.raises(SettingsError, match="SVC_AGENT_PORTS"):
        load({"SVC_AGENT_PORTS": value})


@pytest.mark.parametrize("value", [
    "dashboard.example.test", "null", "*", "https://", "https://*", "ftp://a.test", "//a.test",
    "https://a.test/", "https://a.test/path", "https://user@a.test", "https://a.test?x=1",
    "https://a.test,b.test", "https://a.test:x", "https://[::1",
])
def test_what_is_no_origin_of_a_page_is_refused_by_name(value):
    with pytest.raises(SettingsError, match="SVC_BROWSER_ORIGINS"):
        load({"SVC_BROWSER_ORIGINS": value})


@pytest.mark.parametrize("value", ["", "localhost", "::1", "192.0.2.1:80", "192.0.2.0/24", "1.2.3",
                                   "192.0.2.1,192.0.2.2"])
def test_a_node_is_reached_at_one_address_of_ipv4(value):
    """The edge's balancer and the count of open connections know no others."""
    with pytest.raises(SettingsError, match="SVC_NODE_ADDRESS"):
        load({"SVC_NODE_ADDRESS": value})
    assert load({"SVC_NODE_ADDRESS": "192.0.2.1"}).node_address == "192.0.2.1"


def test_origins_are_written_as_browsers_send_them():
    given = "https://Dash.example.test:443, http://localhost:5173,http://[::1]:80"
    assert load({"SVC_BROWSER_ORIGINS": given}).browser_origins == (
        "https://dash.example.test", "http://localhost:5173", "http://[::1]")


def test_an_env_file_is_read_without_comments_and_blanks(tmp_path: Path):
    path = tmp_path / "some.env"
    path.write_text("# a comment\n\nSVC_NODE_ID=n1\nSVC_URL=http://h/?a=b\n")
    assert read_env(path) == {"SVC_NODE_ID": "n1", "SVC_URL": "http://h/?a=b"}
    assert read_env(tmp_path / "missing") == {}


@pytest.mark.parametrize(("written", "meant"), [
    ("plain # text", "plain # text"), ("'in quotes'", "in quotes"), ('"in quotes"', "in quotes"),
    ("it's", "it's"), ("'one side", "'one side"), ("'", "'"), ('""', ""),
    (r"a\\b\c", r"a\bc"), (r"'a\b'", r"a\b"), (r'"a\b\"c\$"', r'a\b"c$'),
])
def test_a_value_of_an_env_file_is_what_systemd_reads(tmp_path: Path, written, meant):
    path = tmp_path / "some.env"
    path.write_text(f"; a comment=1\n  # SVC_NODE_ID=n2\nSVC_NODE_ID = {written} \n")
    assert read_env(path) == {"SVC_NODE_ID": meant}


def test_every_value_a_stack_generates_is_a_valid_setting(tmp_path: Path):
    site = Site.existing(tmp_path)
    assert load(site.values).data_dir == tmp_path
