"""What a development stack remembers, and what follows from where it is and from the operator's
settings today."""
import os
from pathlib import Path

import pytest

from bin.stack import dev_env, host_shares, site
from bin.stack.site import Site


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """An empty checkout on a host of its own."""
    monkeypatch.setattr(host_shares, "CLAIMS", tmp_path / "claims")
    for name in list(os.environ):
        if name.startswith("SVC_"):
            monkeypatch.delenv(name)

    def move(name):
        monkeypatch.setattr(site, "ROOT", tmp_path / name)
        monkeypatch.setattr(site, "DEVELOPMENT", tmp_path / name / "var")
        return tmp_path / name
    move("before").mkdir()
    return move


def test_the_address_of_the_shell_follows_the_port_of_the_edge(checkout, monkeypatch):
    Site.development()
    (checkout("before") / ".env").write_text("SVC_EDGE_PORT=9443\n")
    assert Site.development().values["SVC_SHELL_URL"] == "wss://shell.localhost:9443"
    (checkout("before") / ".env").write_text("SVC_EDGE_PORT=9443\nSVC_SHELL_URL=wss://shell.x\n")
    assert Site.development().values["SVC_SHELL_URL"] == "wss://shell.x"


@pytest.mark.parametrize("read", [Site.development, lambda: Site.existing(site.DEVELOPMENT)],
                         ids=["make up", "make status"])
def test_a_checkout_that_was_moved_finds_its_files(checkout, read):
    before = Site.development().values
    env = checkout("before") / "var" / "stack.env"
    env.write_text(env.read_text().replace(before["SVC_NODE_DIR"], "/disk/node"))
    checkout("before").rename(checkout("after"))
    after = read().values
    assert after["SVC_NODE_DIR"] == "/disk/node", "it was chosen"
    moved = {name for name, value in after.items() if value != before.get(name)}
    assert moved - {"SVC_NODE_DIR"} == {
        "SVC_DATA_DIR", "SVC_IMAGE_DIR", "SVC_SIGNING_KEYS_DIR", "SVC_CA_FILE"}
    for name in moved - {"SVC_NODE_DIR"}:
        assert Path(after[name]).is_relative_to(checkout("after") / "var")


def test_a_shell_that_sourced_another_stacks_addresses_changes_none_of_these(checkout, monkeypatch):
    """Every line of `dev.env` that is a setting."""
    before = Site.development().values
    for name in dev_env.ADDRESSES:
        monkeypatch.setenv(name, "9443")
    after = Site.development().values
    assert {name: after[name] for name in dev_env.ADDRESSES} == {
        name: before[name] for name in dev_env.ADDRESSES}


def test_clients_are_told_the_port_of_the_edge(checkout):
    made = Site.development()
    dev_env.write(made, dict.fromkeys(set(dev_env.NAMES) - {*dev_env.ADDRESSES}, "known"))
    assert dev_env.read(made)["SVC_EDGE_PORT"] == made.values["SVC_EDGE_PORT"]
