"""The processes run as accounts of their own, which have to be able to read the code, whatever the
umask of who has cloned it."""
import inspect
import os
import re
import subprocess

import pytest

from bin import bench, bootstrap, image, restart, systemd
from bin import test as bin_test
from bin import up
from bin.console import Advice
from bin.stack import running
from bin.stack.running import Stack
from bin.stack.site import Site
from bin.stack.unix_accounts import CODE, check_code


@pytest.fixture
def checkout(tmp_path):
    """One whose files everybody can read."""
    top = tmp_path / "a checkout"
    for folder in (*CODE, "models/migrations", "models/__pycache__",
                   ".venv/lib/python3/site-packages/flask", "var"):
        (top / folder).mkdir(parents=True)
    for file in ("models/rows.py", "models/migrations/0001.py", "models/.rows.py.swp",
                 "models/__pycache__/rows.pyc", ".venv/lib/python3/site-packages/six.py",
                 "var/stack.env"):
        (top / file).touch()
    subprocess.run(["chmod", "-R", "go+rX", top], check=True)
    (top / "models" / "linked.py").symlink_to("rows.py")
    return top


@pytest.mark.parametrize(("closed", "mode"), [
    (".", 0o700), ("models", 0o700), ("models/migrations", 0o750), ("models/rows.py", 0o600),
    ("models/migrations/0001.py", 0o640), (".venv", 0o700),
    (".venv/lib/python3/site-packages/flask", 0o700),
    (".venv/lib/python3/site-packages/six.py", 0o600),
])
def test_what_is_closed_is_said_with_the_command_that_opens_it(checkout, closed, mode):
    check_code(checkout)
    (checkout / closed).chmod(mode)
    (checkout / "var" / "stack.env").chmod(0o600)
    with pytest.raises(Advice) as told:
        check_code(checkout)
    [command] = re.findall("chmod .*$", str(told.value))
    subprocess.run(["sh", "-euc", command], check=True)
    check_code(checkout)
    assert (checkout / "var" / "stack.env").stat().st_mode & 0o777 == 0o600


def test_after_a_clone_with_another_umask_one_line_opens_all(checkout):
    subprocess.run(["chmod", "-R", "go-rwx", checkout], check=True)
    with pytest.raises(Advice) as told:
        check_code(checkout)
    subprocess.run(["sh", "-euc", re.findall("chmod .*$", str(told.value))[0]], check=True)
    check_code(checkout)
    assert (checkout / "var").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("unread", ["models/.rows.py.swp", "models/__pycache__",
                                    "models/__pycache__/rows.pyc", "var"])
def test_what_they_do_not_read_may_be_closed(checkout, unread):
    (checkout / unread).chmod(0o600)
    check_code(checkout)


def closed():
    raise Advice("closed")


def test_nothing_is_started_and_no_unit_written_before(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(running.unix_accounts, "check_code", closed)
    monkeypatch.setattr(systemd, "check_code", closed)
    monkeypatch.setattr(systemd, "export", lambda target: pytest.fail("it wrote units"))
    with pytest.raises(Advice, match="closed"):
        Stack(Site(tmp_path, {}), processes=()).prepare()
    with pytest.raises(SystemExit):
        systemd.main()
    assert "error: closed" in capsys.readouterr().err


class Begun(Exception):
    """A command is about to do its work."""


@pytest.fixture
def umask():
    """One that closes what is written to others."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize("command", [bench, bootstrap, image, restart, bin_test, up])
def test_what_a_command_writes_can_be_read_whatever_its_caller_has(monkeypatch, umask, command):
    def explained():
        raise Begun

    monkeypatch.setattr(command, "explained", explained)
    with pytest.raises(Begun):
        command.main(*([[]] if inspect.signature(command.main).parameters else []))
    assert os.umask(0o077) == 0o022
