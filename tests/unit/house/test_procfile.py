"""The Procfile, and where the HTTP processes listen."""
import pytest

from bin.stack.supervision import supervise
from config.bind import bind_of
from models.states import Lane
from services.operations.announcements import queue_name

NAMES = [
    "api", "identity", "shell", "edge", "gateway", "guest-gateway", "releases", "control",
    "webhooks", "relay", "beat", "node-ctl", "node-ops", "node-bulk", "node-archive",
    "node-deploy", "flower"
]


def test_the_procfile_names_every_process_and_a_release_step():
    assert list(supervise.procfile()) == NAMES
    assert supervise.release_command() == "python -m models.migrate"


@pytest.mark.parametrize("lane", Lane)
def test_a_lane_has_a_worker_that_takes_what_is_in_its_queue(lane):
    line = supervise.procfile()[f"node-{lane.value}"]
    assert f" SVC_LANE={lane.value} " in line
    assert f" -Q {queue_name('$SVC_NODE_ID', lane)} " in line


@pytest.mark.parametrize(("explicit", "url", "bind"), [
    ("", "http://127.0.0.1:18080", "127.0.0.1:18080"),
    ("", "https://api.example.org", "api.example.org:443"),
    ("", "http://api.example.org", "api.example.org:80"),
    ("0.0.0.0:8080", "https://api.example.org", "0.0.0.0:8080"),
])
def test_an_http_process_listens_where_its_url_or_its_bind_setting_says(explicit, url, bind):
    assert bind_of(explicit, url) == bind
