"""The Procfile, what the supervisor makes of it, and where the HTTP processes listen."""
import configparser

import pytest

from bin.stack import servers
from bin.stack.site import Site
from bin.stack.supervision import start_files, supervise
from config.bind import bind_of

NAMES = [
    "api", "identity", "shell", "edge", "gateway", "guest-gateway", "releases", "control",
    "webhooks", "relay", "beat", "node-ctl", "node-ops", "node-bulk", "node-archive",
    "node-deploy", "flower"
]


@pytest.fixture
def site(tmp_path):
    secrets = {
        "SVC_DATABASE_URL": "postgresql://svc:sesame-1@127.0.0.1:1/svc",
        "SVC_S3_SECRET_KEY": "sesame-2", "SVC_REDIS_URL": "redis://:sesame-3@127.0.0.1:1/0",
        "SVC_FLOWER_BASIC_AUTH": "admin:sesame-4"
    }
    return Site(tmp_path, {"SVC_DATA_DIR": str(tmp_path), "SVC_NODE_ID": "n", **secrets})


def test_the_procfile_names_every_process_and_a_release_step():
    assert list(supervise.procfile()) == NAMES
    assert supervise.release_command() == "python -m models.migrate"


def test_every_process_is_supervised_and_started_again_when_it_ends(site):
    parser = configparser.RawConfigParser()
    parser.read_string(supervise.configuration(site, [*servers.commands(site), *NAMES]))
    programs = [
        name.removeprefix("program:") for name in parser.sections() if name.startswith("program:")
    ]
    assert programs == ["postgres", "redis", "s3", *NAMES]
    assert all(parser[f"program:{name}"]["autorestart"] == "true" for name in programs)


def test_secrets_are_in_files_that_only_root_reads(site):
    programs = {**servers.commands(site), **supervise.procfile()}
    for name, command in programs.items():
        process = supervise.TABLE.get(name)
        start_files.write(site, name, process, command)
        path = start_files.path_of(site, name, process)
        assert path.stat().st_mode & 0o777 == 0o600
        if process:
            assert set(start_files.read(path).environ) & set(site.values) <= process.variables
        else:
            assert "sesame" not in path.read_text()
    assert "sesame" not in supervise.configuration(site, programs)


@pytest.mark.parametrize(("explicit", "url", "bind"), [
    ("", "http://127.0.0.1:18080", "127.0.0.1:18080"),
    ("", "https://api.example.org", "api.example.org:443"),
    ("", "http://api.example.org", "api.example.org:80"),
    ("0.0.0.0:8080", "https://api.example.org", "0.0.0.0:8080"),
])
def test_an_http_process_listens_where_its_url_or_its_bind_setting_says(explicit, url, bind):
    assert bind_of(explicit, url) == bind
