"""What a lane does when its worker starts, and what the ctl lane of a node does ever after: its
heartbeat, its reconciler, and a look at memory that grows."""
import dataclasses
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable

from models.database import DatabaseFailed, when_database_answers
from models.states import Lane
from nodeworker import lanes_alive, node_directory, parked_operations, usage, warm_images
from nodeworker.clock_watch import ClockWatch
from nodeworker.deploys import replica_files
from nodeworker.disks.reserve_blocks import MIB
from nodeworker.faults import fault
from nodeworker.handlers import archives
from nodeworker.hypervisor import host_memory
from nodeworker.hypervisor.driver import DriverError
from nodeworker.lanes_alive import LaneWatch
from nodeworker.reconciliation.reconciler import Reconciler, restore_network
from nodeworker.snapshots.disk_upload import forget_dead
from nodeworker.wiring import NodeDeps
from objects.store import StoreUnavailable
from services.deploys import runs
from services.hosts import nodes
from services.hosts.nodes import NodeFacts
from services.hosts.warm_images import BAKES
from services.operations import claims
from services.operations.announcements import worker_name
from services.sandboxes import idle
from services.snapshots import deletion, disk_upload

log = logging.getLogger(__name__)
_HOLD_POLL_S = 0.5


def begin(deps: NodeDeps, lane: Lane) -> None:
    """See that the node directory is this node's (all). Count usage, reclaim, look for warm images
    and start the heartbeat (ctl), announce uploads, deletions and bakes again (bulk), remove what
    is half-stored for nobody (archive), end old leases and then say that the lane works (all).

    The database may come up later than we do: it is waited for. Whatever else goes wrong is raised,
    for a node that has started by half looks alive and does nothing.
    """
    fault("start.begun")
    if lane is Lane.CTL:
        restore_network(deps)  # it cannot wait for a database that is not up
    # In a directory that is not this node's every machine would look as if it had no files.
    _when_database_answers(lambda: node_directory.check(deps))
    if lane is Lane.CTL:
        _sample_what_ended(deps)
        deps.driver.reclaim()
        watch = LaneWatch(deps.settings.node_dir, deps.settings.node_dead_after_s)
        _when_database_answers(
            lambda: nodes.heartbeat(node_facts(deps), watch.list_up(), started=True))
        _when_database_answers(lambda: node_directory.claim(deps))
        reconciler = Reconciler(deps)
        _when_database_answers(reconciler.run)
        _when_database_answers(lambda: warm_images.compare(deps, node_facts(deps)))
        _keep_doing(_heartbeats, deps, watch)
        _keep_doing(_reconcile, deps, reconciler)
        due = parked_operations.listen(deps.settings.node_dir)
        _keep_doing(parked_operations.announce, deps, due)
        _keep_doing(_hold_growing, deps)
    if lane is Lane.ARCHIVE:
        _when_database_answers(lambda: _discard_abandoned(deps))
    if lane is runs.LANE:
        replica_files.remove_left_behind(deps.settings)
        _when_database_answers(lambda: runs.resume(deps.settings.node_id))
    if lane is Lane.BULK:
        forget_dead(deps)
        _when_database_answers(lambda: _make_due(deps.settings.node_id))
    _when_database_answers(lambda: _end_leases(worker_name(deps.settings.node_id, lane)))
    lanes_alive.hold(deps.settings.node_dir, lane)


def _sample_what_ended(deps: NodeDeps) -> None:
    """Count what machines used that ended by themselves while no worker looked: reclaiming removes
    their counters."""
    try:
        usage.sample_node(deps)
    except DatabaseFailed as error:
        log.warning("usage not counted at start: %s", type(error).__name__)


def _discard_abandoned(deps: NodeDeps) -> None:
    try:
        archives.discard_abandoned(deps)
    except StoreUnavailable as error:
        log.warning("what archives left half-stored stays until the next start: %s", error)


def _end_leases(worker: str) -> None:
    count = claims.release_leases(worker)
    if count:
        log.warning("%d operations were under way when %s last stopped; they go on", count, worker)


def _make_due(node_id: str) -> None:
    for work in (disk_upload.UPLOADS, BAKES, deletion.DELETIONS):
        work.make_due(node_id)


def _when_database_answers(action: Callable[[], object]) -> None:
    when_database_answers(action, limit_s=math.inf)


def _keep_doing(chore: Callable[..., None], *arguments: object) -> None:
    """Begin what goes on beside the jobs of the lane until its process ends."""
    threading.Thread(target=chore, args=arguments, name=chore.__name__.strip("_"),
                     daemon=True).start()


def _heartbeats(deps: NodeDeps, watch: LaneWatch) -> None:
    clock = ClockWatch()
    while True:
        time.sleep(deps.settings.node_heartbeat_s)
        try:
            facts = node_facts(deps)
            clock.note(nodes.heartbeat(facts, watch.list_up()))
            idle.hibernate_idlest(deps.rules, facts, deps.settings.strained_idle_s)
        except DatabaseFailed as error:
            log.warning("heartbeat not written: %s", type(error).__name__)
        except Exception:
            # A node that works on in silence is given nothing and knows nothing of it.
            log.critical("no heartbeat can be made, so this worker ends", exc_info=True)
            os.kill(os.getpid(), signal.SIGTERM)
            return


def _reconcile(deps: NodeDeps, reconciler: Reconciler) -> None:
    """Compare the machines of this host with the rows, and look for bakes that their workers left,
    by this host's own clock: it goes on while beat or the broker is away."""
    while True:
        time.sleep(deps.settings.reconcile_s)
        try:
            reconciler.run()
            warm_images.look_after(deps)
        except DatabaseFailed as error:
            log.warning("machines and rows not compared: %s", type(error).__name__)
        except Exception:
            log.exception("machines and rows could not be compared; trying again")


def _hold_growing(deps: NodeDeps) -> None:
    """Stop what grows before the disk is full. A guest writes gigabytes of its memory in a second,
    so this waits for nothing else, not even for the database."""
    while True:
        time.sleep(_HOLD_POLL_S)
        try:
            for sandbox_id in deps.driver.hold_growing():
                log.error("sandbox %s is held, because its memory grows and the disk of this host"
                          " is almost full", sandbox_id)
        except DriverError as error:
            log.error("machines that grow could not be looked at: %s", error)
        except Exception:
            # Nothing else keeps them from filling the disk, so this never ends.
            log.exception("machines that grow could not be looked at; trying again")


def node_facts(deps: NodeDeps) -> NodeFacts:
    """This host as its row describes it."""
    settings = deps.settings
    low, high = settings.host_ports
    space = deps.driver.disk_space()
    return NodeFacts(
        id=settings.node_id,
        address=settings.node_address,
        vcpus=settings.node_vcpus or int((os.cpu_count() or 1) * settings.vcpu_overcommit),
        mem_mb=host_memory.promised_mb(settings),
        ram_share=settings.ram_share,
        host_port_low=low,
        host_port_high=high,
        host_tuple=dataclasses.asdict(deps.driver.host_tuple()),
        agent_port_low=settings.agent_ports[0],
        agent_port_high=settings.agent_ports[1],
        disk_mb=space.total_bytes // MIB,
        disk_free_mb=space.free_bytes // MIB,
        disk_floor_mb=settings.disk_floor_mb,
        presets=tuple(deps.driver.presets_facts().versions),
        images=tuple(deps.driver.image_builds()),
        cpus=os.cpu_count(),
        oversell=settings.oversell,
        memory_is_scarce=host_memory.is_scarce(),
    )
