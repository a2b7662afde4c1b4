"""Gives up runs that nobody has finished by their deadline and that nobody works on now, as when
their node is gone for good."""
from contextlib import suppress

from models.database import connection, database, now
from models.deploys import DeployRun
from services.deploys import failed_runs, runs
from services.operations import outbox
from services.operations.claims import LeaseLost
from services.protocols import Deps

_BATCH, _LEASE_S = 50, 10.0
_WORKER = "control"


def give_up(deps: Deps) -> list[str]:
    """End them as failed; returns the slugs of their apps."""
    given_up = []
    with connection():
        moment = now()
        overdue = runs.unheld_query(moment).where(DeployRun.deadline_at < moment)
        for row in overdue.limit(_BATCH):
            messages = []
            # The app before the run, as everywhere; one that was deleted has ended it.
            with suppress(LeaseLost), database.atomic():
                runs.lock_app(row)
                claimed = runs.claim(row.id, row.node_id, _WORKER, _LEASE_S)
                if claimed is not None:
                    messages = failed_runs.fail(deps, claimed, "The deploy did not finish in time.",
                                                row.operator_error)
                    given_up.append(claimed.slug)
            outbox.flush(deps.queue, messages)
    return given_up
