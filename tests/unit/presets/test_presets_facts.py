"""Which agent presets a host says it has."""
import json

import pytest

from config.settings import Settings
from guest.presets import SLUGS
from nodeworker.hypervisor.qemu.driver import QemuDriver
from nodeworker.hypervisor.simulated.driver import SimulatedDriver

RECORD = {
    "presets": {
        "pi": {"state": "ready", "version": "0.87.1", "reason": ""},
        "codex": {"state": "failed", "version": "", "reason": "its registry does not answer"},
    }
}


@pytest.fixture
def settings(tmp_path):
    return Settings(node_dir=tmp_path / "node", image_dir=tmp_path / "images")


def test_the_simulated_host_has_all_presets(settings):
    facts = SimulatedDriver(settings).presets_facts()
    assert facts.ready and set(facts.versions) == set(SLUGS) and not facts.failed


def test_the_simulated_host_has_the_presets_a_test_writes_down(settings):
    simulated = SimulatedDriver(settings)
    (settings.node_dir / "presets.json").write_text(json.dumps(RECORD))
    facts = simulated.presets_facts()
    assert facts.versions == {"pi": "0.87.1"}
    assert facts.failed == {"codex": "its registry does not answer"}


@pytest.mark.parametrize("make", [SimulatedDriver, QemuDriver])
def test_a_host_without_presets_says_why(make, tmp_path):
    settings = Settings(node_dir=tmp_path / "node", image_dir=tmp_path / "images", presets=())
    facts = make(settings).presets_facts()
    assert not facts.ready and set(facts.failed) == set(SLUGS)
    assert "SVC_PRESETS" in facts.failed["pi"]


def test_a_host_that_has_built_none_yet_is_not_ready(settings):
    facts = QemuDriver(settings).presets_facts()
    assert not facts.ready and facts.progress and not facts.failed
