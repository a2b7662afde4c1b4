"""Reads which agent presets an image has from its presets.json (see `guest.presets`)."""
from typing import Any

from guest.presets import SLUGS
from nodeworker.hypervisor.host_facts import PresetsFacts

NONE_CHOSEN = "this host has no agent presets: SVC_PRESETS is empty"


def facts_of(presets: dict[str, Any]) -> PresetsFacts:
    """The facts of an image that is there, from the entries of its presets.json."""
    ready = {slug: each["version"] for slug, each in presets.items() if each["state"] == "ready"}
    failed = {slug: each["reason"] for slug, each in presets.items() if each["state"] != "ready"}
    return PresetsFacts(True, "", failed, ready)


def nothing_built(progress: str) -> PresetsFacts:
    """The facts while no image is there."""
    return PresetsFacts(False, progress, {}, {})


def none_chosen() -> PresetsFacts:
    """The facts of a host that is to have no presets."""
    return PresetsFacts(False, NONE_CHOSEN, dict.fromkeys(SLUGS, NONE_CHOSEN), {})
