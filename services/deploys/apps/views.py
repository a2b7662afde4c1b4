"""What a service is told about an app and its runs: a frozen record, free of secrets."""
from dataclasses import dataclass
from datetime import datetime

from config.edge_url import edge_url
from config.settings import Settings
from models.deploys import Deploy, DeployRun
from models.states import DeployStatus


@dataclass(frozen=True)
class DeployView:
    """An app, and the run that was begun last: `version`, `run_id`, `deploy_intent_id`,
    `restores_version` and `error` are that run's; `serving_version` and `static` are what is live,
    None before anything is."""

    slug: str
    app_id: str
    url: str
    status: str
    version: int
    serving_version: int | None
    static: bool | None
    run_id: str
    deploy_intent_id: str | None
    restores_version: int | None
    error: str | None
    created_at: datetime
    updated_at: datetime


def deploy_view(settings: Settings, row: Deploy, last: DeployRun) -> DeployView:
    """The view of an app's row and of its last run's."""
    return DeployView(
        slug=row.slug, app_id=row.app_id,
        url=edge_url(settings, f"{row.slug}.{settings.apps_domain}"),
        status=DeployStatus(row.status).value, version=last.version,
        serving_version=row.live_version, static=row.live_static, run_id=last.run_id,
        deploy_intent_id=last.deploy_intent_id, restores_version=last.restores_version,
        error=last.error, created_at=row.created_at,
        updated_at=max(row.updated_at, last.finished_at or row.updated_at),
    )
