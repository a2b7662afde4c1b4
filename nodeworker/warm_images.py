"""Bakes warm images in the background, one at a time on this host, and says in the rows how far
each is.

The lock file says who bakes: the kernel frees it when its holder dies, however it dies. A job that
finds it taken ends at once; whoever holds it announces the next bake when it is done.
"""
import dataclasses
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.settings import Settings
from models.database import DatabaseFailed, connection, when_database_answers
from nodeworker.hypervisor import locks
from nodeworker.hypervisor.driver import Shape
from nodeworker.wiring import NodeDeps
from services.hosts import warm_images
from services.hosts.nodes import NodeFacts
from services.hosts.warm_images import Kind
from services.metering.plans import SIZES
from services.operations import outbox

log = logging.getLogger(__name__)


def bake(deps: NodeDeps, shape: Shape, *, presets: bool = False) -> None:
    """Bake one wanted warm image, unless another bake is under way on this host; then tell of the
    next one."""
    node_id = deps.settings.node_id
    kind = Kind(node_id, shape.vcpus, shape.mem_mb, presets)
    with _alone(deps) as alone:
        if not alone:
            return
        with connection():
            claimed = warm_images.claim(kind)
        if claimed:
            _bake(deps, kind)
    with connection():
        outbox.flush(deps.queue, warm_images.announce_next(node_id))


def _bake(deps: NodeDeps, kind: Kind) -> None:
    def progress(phase: str) -> None:
        try:
            with connection():
                warm_images.report(kind, phase)
        except DatabaseFailed as error:
            log.warning("cannot say that the bake of %s is %s: %s", kind, phase,
                        type(error).__name__)

    try:
        deps.driver.bake(Shape(kind.vcpus, kind.mem_mb), progress, presets=kind.presets)
        host_tuple = dataclasses.asdict(deps.driver.host_tuple())
        if kind.presets:
            _check_presets(deps)
    except Exception as error:
        # whatever went wrong, creates go on without, and the row says why
        log.exception("the warm image %s could not be baked", kind)
        said = f"{type(error).__name__}: {error}"
        when_database_answers(lambda: warm_images.failed(kind, said))
        return
    when_database_answers(lambda: warm_images.done(kind, host_tuple))
    log.info("baked the warm image %s", kind)


def _check_presets(deps: NodeDeps) -> None:
    """Raises PresetsFailed if one that this host is to have is not in the image. Those that are
    there can be used; the others are tried again with the bake."""
    failed = deps.driver.presets_facts().failed
    missing = [f"{slug}: {failed[slug]}" for slug in deps.settings.presets if slug in failed]
    if missing:
        raise PresetsFailed("; ".join(missing))


class PresetsFailed(Exception):
    """Not every preset could be built into the image; the text says which, and why."""


@contextmanager
def _alone(deps: NodeDeps) -> Iterator[bool]:
    """True, and the host's lock held in the block, if nobody else bakes."""
    descriptor = locks.try_lock(lock_file(deps.settings))
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock_file(settings: Settings) -> Path:
    """What is locked while somebody bakes on this node."""
    return settings.node_dir / "bake.lock"


def look_after(deps: NodeDeps) -> None:
    """Queue again what a worker that died was baking."""
    with connection():
        for row in warm_images.list_baking(deps.settings.node_id):
            if not locks.is_locked(lock_file(deps.settings)):
                log.warning("the worker that baked %s vCPUs, %s MB is gone", row.vcpus, row.mem_mb)
                outbox.flush(deps.queue, warm_images.requeue_abandoned(row))


def compare(deps: NodeDeps, facts: NodeFacts) -> None:
    """At the start of the node: look which warm images are here, and want those of
    SVC_BAKE_SIZES and of every shape that was ever asked for. The guest image or QEMU may be others
    than before. Whether the image with the presets is up to date only its builder can tell, so
    those are always wanted."""
    for kind in _wanted(deps):
        shape = Shape(kind.vcpus, kind.mem_mb)
        if not kind.presets and deps.driver.has_warm_image(shape):
            warm_images.found(kind, facts.host_tuple)
        elif kind.presets and not deps.settings.presets:
            warm_images.refuse(kind, "this host is to have no presets: SVC_PRESETS is empty")
        elif shape.vcpus > facts.vcpus or shape.mem_mb > facts.mem_mb:
            warm_images.refuse(
                kind,
                f"too large: this node may promise {facts.vcpus} vCPUs and {facts.mem_mb} MB")
        else:
            outbox.flush(deps.queue, warm_images.want(kind, afresh=True))


def _wanted(deps: NodeDeps) -> list[Kind]:
    """What to look for, those with the presets last."""
    settings = deps.settings
    with_presets = (False, True) if settings.presets else (False,)
    kinds = warm_images.known_kinds(settings.node_id)
    for name in settings.bake_sizes:
        if name in SIZES:
            kinds |= {Kind(settings.node_id, SIZES[name].vcpus, SIZES[name].mem_mb, presets)
                      for presets in with_presets}
        else:
            log.error("SVC_BAKE_SIZES names %s, which is no size; sizes are %s", name,
                      ", ".join(SIZES))
    return sorted(kinds, key=lambda kind: (kind.presets, kind.vcpus, kind.mem_mb))
