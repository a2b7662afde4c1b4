"""Static apps of a running stack, published without a builder: their files go to the store and into
the rows as a node's run does it."""
import io
import tarfile
from datetime import timedelta

from models.database import connection, now
from models.deploys import Deploy, DeployPrefix, DeployRun
from models.ids import new_id
from models.states import RunStep
from models.users import User
from nodeworker.deploys.storing import store
from objects.store import ObjectStore
from services.deploys import publishing, runs, version_prefixes
from services.deploys.edges import staging
from tests.stack.waiting import until

# Where no worker is, so that only the test works on it.
NODE = "nowhere"


def tar_of(files):
    """The tar of a directory with these files, path -> text."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"./{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return held.getvalue()


def publish(deps, slug, files, email=None):
    """Let these files be what is served, as an app of this account; returns the run's claim."""
    with connection():
        which = User.email == email if email else User.disabled_at.is_null()
        owner = User.select().where(which).first()
        Deploy.insert(slug=slug, app_id=new_id("app_"),
                      owner_id=owner.id).on_conflict_ignore().execute()
        row = Deploy.get_by_id(slug)
        Deploy.update(next_version=row.next_version + 1).where(Deploy.slug == slug).execute()
        run = DeployRun.create(
            slug=slug, app_id=row.app_id, owner_id=row.owner_id, version=row.next_version,
            run_id="run", snapshot_id="none", node_id=NODE,
            deadline_at=now() + timedelta(seconds=600))
        claimed = runs.claim(run.id, NODE, "test", 600.0)
        prefix = version_prefixes.keep(claimed.app_id, claimed.version, claimed.epoch)
    store(ObjectStore(deps.settings), prefix, [tar_of(files)], files_most=1000,
          bytes_most=1 << 24)
    with connection():
        claimed = runs.advance(claimed, RunStep.STAGE, stored_epoch=claimed.epoch)
    staging.tell()
    until(lambda: staging.is_everywhere(claimed), 120)
    with connection():
        publishing.publish_static(deps, claimed)
    return claimed


def collect_now(slug):
    """As if the time for version N-1 were over."""
    with connection():
        row = Deploy.get_by_id(slug)
        Deploy.update(collect_previous_at=now()).where(Deploy.slug == slug).execute()
        DeployPrefix.update(due_at=now()).where(
            (DeployPrefix.app_id == row.app_id) & DeployPrefix.due_at.is_null(False)).execute()
