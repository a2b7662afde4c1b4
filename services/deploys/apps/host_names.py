"""Gives apps host names besides their slugs: each leads to one app, for as long as that is there.

Whether a name may be called its owner's is the operator's to know; certificates are files of the
edge's hosts.
"""
from dataclasses import dataclass
from datetime import datetime

from config.host_name_syntax import is_host_name
from config.settings import Settings
from models.database import connection, database
from models.deploys import AppHost, Deploy
from services.deploys.edges.channel import notify
from services.errors import Conflict, InvalidRequest, NotFound


@dataclass(frozen=True)
class HostName:
    """A host name of an app."""

    host: str
    slug: str
    created_at: datetime


def add(settings: Settings, slug: str, host: str) -> None:
    """Let an app be found at a host name, too. Raises NotFound, InvalidRequest, and Conflict for a
    name that is another app's."""
    host = _plain(host)
    if not is_host_name(host):
        raise InvalidRequest("That is no host name; write one of other alphabets as xn--....")
    for domain in (settings.apps_domain, settings.preview_domain):
        if host == domain or host.endswith(f".{domain}"):
            raise InvalidRequest(f"Names below {domain} are given by the service.")
    with connection(), database.atomic():
        app = Deploy.get_or_none(Deploy.slug == slug)
        if app is None:
            raise NotFound(f"There is no app {slug}.")
        AppHost.insert(host=host, app_id=app.app_id).on_conflict_ignore().execute()
        if AppHost.get_by_id(host).app_id != app.app_id:
            raise Conflict(f"{host} is a name of another app.")
        notify()


def remove(host: str) -> None:
    """Let nothing be found at a host name any more; raises NotFound."""
    host = _plain(host)
    with connection(), database.atomic():
        if not AppHost.delete().where(AppHost.host == host).execute():
            raise NotFound(f"{host} is no name of an app.")
        notify()


def _plain(host: str) -> str:
    """A host name as it is kept, however it was written."""
    return host.lower().rstrip(".")


def list_all() -> list[HostName]:
    """All host names, by app."""
    with connection():
        rows = AppHost.select(AppHost.host, Deploy.slug, AppHost.created_at).join(
            Deploy, on=(Deploy.app_id == AppHost.app_id)).order_by(Deploy.slug, AppHost.host)
        return [HostName(*row) for row in rows.tuples()]
