"""What the supervisor is told to start, and that no secret is where others could read it."""
import configparser

import pytest

from bin.stack import servers
from bin.stack.site import Site
from bin.stack.supervision import start_files
from bin.stack.supervision.supervise import procfile
from bin.stack.supervision.supervisord_conf import TABLE, configuration


@pytest.fixture
def site(tmp_path):
    secrets = {
        "SVC_DATABASE_URL": "postgresql://svc:sesame-1@127.0.0.1:1/svc",
        "SVC_S3_SECRET_KEY": "sesame-2", "SVC_REDIS_URL": "redis://:sesame-3@127.0.0.1:1/0",
        "SVC_FLOWER_BASIC_AUTH": "admin:sesame-4"
    }
    return Site(tmp_path, {"SVC_DATA_DIR": str(tmp_path), "SVC_NODE_ID": "n", **secrets})


def test_every_process_is_supervised_and_started_again_when_it_ends(site):
    parser = configparser.RawConfigParser()
    parser.read_string(configuration(site, [*servers.commands(site), *procfile()]))
    programs = [
        name.removeprefix("program:") for name in parser.sections() if name.startswith("program:")
    ]
    assert programs == ["postgres", "redis", "s3", *procfile()]
    assert all(parser[f"program:{name}"]["autorestart"] == "true" for name in programs)


def test_secrets_are_in_files_that_only_root_reads(site):
    programs = {**servers.commands(site), **procfile()}
    for name, command in programs.items():
        process = TABLE.get(name)
        start_files.write(site, name, process, command)
        path = start_files.path_of(site, name, process)
        assert path.stat().st_mode & 0o777 == 0o600
        if process:
            assert set(start_files.read(path).environ) & set(site.values) <= process.variables
        else:
            assert "sesame" not in path.read_text()
    assert "sesame" not in configuration(site, programs)
