"""Served apps of a running stack, published without a run: a row leads to a sandbox that was made
by other means."""
from datetime import timedelta

from models.database import connection, database, now
from models.deploys import Deploy
from models.ids import new_id
from models.sandboxes import Sandbox
from models.states import DeployStatus
from services.deploys import drained_sandboxes
from services.deploys.edges import staging


def go_live(slug, sandbox_id):
    """Let the sandbox be what serves the app, as a flip does: no fence is left, and the sandbox
    before is asked about."""
    with connection(), database.atomic():
        owner = Sandbox.get_by_id(sandbox_id).owner_id
        Deploy.insert(slug=slug, app_id=new_id("app_"), owner_id=owner).on_conflict_ignore(
        ).execute()
        before = Deploy.get_by_id(slug)
        Deploy.update(status=DeployStatus.LIVE, live_version=(before.live_version or 0) + 1,
                      live_epoch=1, live_static=False, live_sandbox_id=sandbox_id,
                      fence_until=None).where(Deploy.slug == slug).execute()
        if before.live_sandbox_id is not None:
            drained_sandboxes.clear(before.live_sandbox_id)
            drained_sandboxes.ask(before.live_sandbox_id, 60)
        staging.tell()


def fence(slug, seconds):
    """Have requests held, and ask about those in flight; returns the sandbox."""
    with connection(), database.atomic():
        Deploy.update(fence_until=now() + timedelta(seconds=seconds)).where(
            Deploy.slug == slug).execute()
        sandbox_id = Deploy.get_by_id(slug).live_sandbox_id
        drained_sandboxes.ask(sandbox_id, seconds)
        return sandbox_id


def open_fence(slug):
    """Let requests go on to what is live."""
    with connection(), database.atomic():
        Deploy.update(fence_until=None).where(Deploy.slug == slug).execute()
        staging.tell()


def take_away(slug):
    """Delete the app."""
    with connection(), database.atomic():
        Deploy.delete().where(Deploy.slug == slug).execute()
        staging.tell()
