"""A database is served by the version of Postgres that wrote it, whatever else is installed
later."""
import os

import pytest

from bin.console import Advice
from bin.stack import servers
from bin.stack.site import Site


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A stack without data on a host with two versions."""
    monkeypatch.setattr(servers, "_INSTALLED", tmp_path / "installed")
    for version in ("9", "15"):
        (tmp_path / "installed" / version / "bin").mkdir(parents=True)
        (tmp_path / "installed" / version / "bin" / "postgres").touch()
    return Site(tmp_path / "var", {})


def write_data(site, version):
    data = site.data_dir / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text(f"{version}\n")


def test_a_new_database_is_of_the_newest_version(site):
    assert "installed/15/bin/postgres" in servers.commands(site)["postgres"]


def test_one_that_is_there_is_served_by_its_own_version(site):
    write_data(site, 9)
    assert "installed/9/bin/postgres" in servers.commands(site)["postgres"]


@pytest.mark.parametrize("said", ["", "../15", "15/../../x$(touch PWNED)", "15;true", "15\n16"])
def test_what_is_no_version_becomes_part_of_no_command(site, said):
    write_data(site, said)
    with pytest.raises(Advice, match="PG_VERSION is no file that names a version"):
        servers.commands(site)


def test_nor_does_what_its_account_has_linked_there(site, tmp_path):
    """Neither in the place of the file nor of its directory."""
    write_data(site, 9)
    directory = site.data_dir / "postgres"
    os.chown(directory, 65534, 65534)
    (directory / "data").rename(tmp_path / "elsewhere")
    (directory / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Advice, match="may have been taken over"):
        servers.commands(site)
    (directory / "data").unlink()
    (directory / "data").mkdir()
    (directory / "data" / "PG_VERSION").symlink_to(tmp_path / "elsewhere" / "PG_VERSION")
    with pytest.raises(Advice, match="may have been taken over"):
        servers.commands(site)


def test_what_to_do_is_said_where_its_version_is_missing(site):
    write_data(site, 14)
    with pytest.raises(Advice, match="(?s)postgresql-14.*pg_upgrade"):
        servers.prepare(site)
