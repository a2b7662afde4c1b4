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
from services.metering.plans import SIZES
from services.operations import outbox

log = logging.getLogger(__name__)


def bake(deps: NodeDeps, shape: Shape) -> None:
    """Bake one wanted warm image, unless another bake is under way on this host; then tell of the
    next one."""
    node_id = deps.settings.node_id
    with _alone(deps) as alone:
        with connection():
            if not alone or not warm_images.claim(node_id, shape.vcpus, shape.mem_mb):
                return
        _bake(deps, shape)
    with connection():
        outbox.flush(deps.queue, warm_images.announce_next(node_id))


def _bake(deps: NodeDeps, shape: Shape) -> None:
    which = (deps.settings.node_id, shape.vcpus, shape.mem_mb)

    def progress(phase: str) -> None:
        try:
            with connection():
                warm_images.report(*which, phase)
        except DatabaseFailed as error:
            log.warning("cannot say that the bake of %s is %s: %s", shape, phase,
                        type(error).__name__)

    try:
        deps.driver.bake(shape, progress)
    except Exception as error:
        # whatever went wrong, creates go on by booting cold, and the row says why
        log.exception("the warm image of %s could not be baked", shape)
        said = f"{type(error).__name__}: {error}"
        when_database_answers(lambda: warm_images.failed(*which, said))
        return
    host_tuple = dataclasses.asdict(deps.driver.host_tuple())
    when_database_answers(lambda: warm_images.done(*which, host_tuple))
    log.info("baked the warm image of %s", shape)


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
    than before."""
    for shape in _wanted(deps):
        which = (facts.id, shape.vcpus, shape.mem_mb)
        if deps.driver.has_warm_image(shape):
            warm_images.found(*which, facts.host_tuple)
        elif shape.vcpus > facts.vcpus or shape.mem_mb > facts.mem_mb:
            warm_images.refuse(
                *which,
                f"too large: this node may promise {facts.vcpus} vCPUs and {facts.mem_mb} MB")
        else:
            outbox.flush(deps.queue, warm_images.want(*which, afresh=True))


def _wanted(deps: NodeDeps) -> list[Shape]:
    shapes = warm_images.known_shapes(deps.settings.node_id)
    for name in deps.settings.bake_sizes:
        if name in SIZES:
            shapes.add((SIZES[name].vcpus, SIZES[name].mem_mb))
        else:
            log.error("SVC_BAKE_SIZES names %s, which is no size; sizes are %s", name,
                      ", ".join(SIZES))
    return [Shape(vcpus, mem_mb) for vcpus, mem_mb in sorted(shapes)]
