"""The jobs of a VM host, by the names in `tasks.contracts`; each parses its payload and calls what
does the work."""
from typing import Any

from models.states import OperationKind
from nodeworker import runner, usage, warm_images
from nodeworker.deploys import run_steps as deploys
from nodeworker.hypervisor.driver import Shape
from nodeworker.snapshots import deletion, disk_upload, store_sweep
from nodeworker.wiring import get_deps
from nodeworker.worker import LANE, app
from objects.store import ObjectStore
from services.deploys import version_prefixes
from services.hosts import storage_use
from services.operations.announcements import job_name
from tasks import contracts


def _operation_job(name: str) -> None:
    @app.task(name=name)  # type: ignore[untyped-decorator]
    def job(**payload: Any) -> None:
        announced = contracts.parse(name, payload)
        runner.run_announced(get_deps(), announced.sandbox_id, announced.op_seq, LANE)


for kind in OperationKind:
    _operation_job(job_name(kind))


@app.task(name=contracts.SAMPLE)  # type: ignore[untyped-decorator]
def sample_usage(**payload: Any) -> None:
    """Count what the sandboxes of this host have used."""
    contracts.parse(contracts.SAMPLE, payload)
    usage.sample_node(get_deps())


@app.task(name=contracts.BAKE)  # type: ignore[untyped-decorator]
def bake_warm_image(**payload: Any) -> None:
    """Bake the warm image of a shape that this node is to have."""
    asked = contracts.parse(contracts.BAKE, payload)
    warm_images.bake(get_deps(), Shape(asked.vcpus, asked.mem_mb), presets=asked.presets)


@app.task(name=contracts.UPLOAD)  # type: ignore[untyped-decorator]
def upload_snapshot(**payload: Any) -> None:
    """Carry the disk of a snapshot to the object store."""
    asked = contracts.parse(contracts.UPLOAD, payload)
    deps = get_deps()
    disk_upload.upload(deps, ObjectStore(deps.settings), asked.snapshot_id)


@app.task(name=contracts.DELETE_SNAPSHOT)  # type: ignore[untyped-decorator]
def delete_snapshot(**payload: Any) -> None:
    """Remove a snapshot that is being deleted from this host and from the object store."""
    asked = contracts.parse(contracts.DELETE_SNAPSHOT, payload)
    deps = get_deps()
    deletion.remove_snapshot(deps, ObjectStore(deps.settings), asked.snapshot_id)


@app.task(name=contracts.DEPLOY_RUN)  # type: ignore[untyped-decorator]
def work_on_deploy(**payload: Any) -> None:
    """Do what is next of a deploy."""
    asked = contracts.parse(contracts.DEPLOY_RUN, payload)
    deploys.run_announced(get_deps(), asked.run)


@app.task(name=contracts.REMOVE_PREFIX)  # type: ignore[untyped-decorator]
def remove_prefix(**payload: Any) -> None:
    """Remove a version of an app that nothing needs from the object store."""
    asked = contracts.parse(contracts.REMOVE_PREFIX, payload)
    ObjectStore(get_deps().settings).remove_all(asked.prefix)
    version_prefixes.removed(asked.prefix)


@app.task(name=contracts.STORE_SWEEP)  # type: ignore[untyped-decorator]
def sweep_store(**payload: Any) -> None:
    """Remove what the object store holds for nobody."""
    contracts.parse(contracts.STORE_SWEEP, payload)
    deps = get_deps()
    store_sweep.sweep_store(deps, ObjectStore(deps.settings))


@app.task(name=contracts.DISK_SAMPLE)  # type: ignore[untyped-decorator]
def sample_disks(**payload: Any) -> None:
    """Free disk layers that nothing needs any more and write down what the rest occupies."""
    contracts.parse(contracts.DISK_SAMPLE, payload)
    deps = get_deps()
    deps.driver.collect_garbage()
    found = deps.driver.disk_use()
    storage_use.record(deps.settings.node_id, found.sandboxes, found.snapshots, found.node)
