"""Which installation an operator's command is about; one of production has settings of its own."""
import os
import subprocess
import sys

import pytest

from bin import admin, image, run, up
from bin.console import Advice
from bin.stack.site import ROOT


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No settings in the environment, and no stack."""
    for name in [name for name in os.environ if name.startswith("SVC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(admin, "DEVELOPMENT", tmp_path / "var")
    monkeypatch.setattr(admin, "SERVICE_ENV", tmp_path / "service.env")
    return tmp_path


def test_where_the_settings_come_from(nowhere, monkeypatch):
    with pytest.raises(Advice, match="make up"):
        admin.environment()
    (nowhere / "service.env").write_text("SVC_DATABASE_URL=production\n")
    assert admin.environment()["SVC_DATABASE_URL"] == "production"
    (nowhere / "var").mkdir()
    (nowhere / "var" / "stack.env").write_text("SVC_DATABASE_URL=development\n")
    assert admin.environment()["SVC_DATABASE_URL"] == "development"
    monkeypatch.setenv("SVC_DATABASE_URL", "by hand")
    assert admin.environment()["SVC_DATABASE_URL"] == "by hand"


def test_commands_of_a_production_host_have_its_settings(nowhere, monkeypatch, capsys):
    (nowhere / "service.env").write_text("SVC_DATABASE_URL=production\nSVC_IMAGE_DIR=/images\n")
    become, images = [], []
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(os, "execvpe", lambda *told: become.append(told))
    run.main(["python", "-m", "models.migrate"])
    [(program, words, environ)] = become
    assert (program, words) == ("python", ["python", "-m", "models.migrate"])
    assert environ["SVC_DATABASE_URL"] == "production"
    assert environ["PATH"].startswith(f"{ROOT}/.venv/bin:")
    monkeypatch.setattr(image, "ensure_images", lambda hosts: images.append(hosts))
    image.main()
    assert images == [{"SVC_IMAGE_DIR": "/images"}]


HELP = """
import sys
from pathlib import Path
from bin import admin
admin.DEVELOPMENT = admin.SERVICE_ENV = Path(sys.argv[1]) / "nothing"
admin.main(sys.argv[2:])
"""


@pytest.mark.parametrize(("words", "code", "said"), [
    (["--help"], 0, "Look at and manage the accounts"),
    (["node-list", "--help"], 0, "--json"), (["node-list"], 1, "no installation is known here"),
], ids=["help", "help of a command", "no help"])
def test_help_is_to_be_had_before_there_is_an_installation(nowhere, words, code, said):
    done = subprocess.run([sys.executable, "-c", HELP, nowhere, *words], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    assert done.returncode == code and said in done.stdout + done.stderr


def test_a_mistyped_command_of_an_operator_is_one_sentence(nowhere, monkeypatch, capsys):
    (nowhere / "service.env").write_text("SVC_DATABASE_URL=production\n")
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        run.main(["pyhton", "-m", "models.migrate"])
    assert "there is no command pyhton" in capsys.readouterr().err


def test_make_up_leaves_the_host_of_another_installation_alone(tmp_path):
    service_env, data_dir = tmp_path / "service.env", tmp_path / "var"
    up.check_host(service_env, data_dir)
    service_env.write_text("SVC_DATABASE_URL=production\n")
    with pytest.raises(Advice, match="part of an installation"):
        up.check_host(service_env, data_dir)
    data_dir.mkdir()
    (data_dir / "stack.env").write_text("")
    up.check_host(service_env, data_dir)
