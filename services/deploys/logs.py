"""Keeps what a run says while it works: readable at once, whatever becomes of the run.

Nobody can read a log once the next run of its app has begun, or the app is deleted; a sweep removes
it then. It has a most; what comes after that is left out, and a line says so. The bytes of a piece
are counted as they came from the guest: a second worker that reads a piece again writes it once.
"""
import peewee

from models.database import connection
from models.deploys import Deploy, DeployLog, DeployRun

LOG_BYTES_MOST = 1024 * 1024
_CUT = "\n[the log is longer; the rest is left out]\n"


def add(run: int, start_byte: int, content: bytes) -> None:
    """Write a piece that begins at byte `start_byte` of the builder's log; a second time nothing
    happens."""
    if not content or start_byte > LOG_BYTES_MOST:
        return
    text = content.decode("utf-8", "replace").replace("\0", "\ufffd")
    if start_byte + len(content) > LOG_BYTES_MOST:
        text = text[:max(0, LOG_BYTES_MOST - start_byte)] + _CUT
    with connection():
        DeployLog.insert(run=run, start_byte=start_byte, bytes=len(content),
                         content=text).on_conflict_ignore().execute()


def begin_anew(run: int) -> None:
    """Forget what another builder has said; in the current transaction, if there is one."""
    with connection():
        DeployLog.delete().where(DeployLog.run == run).execute()


def forget_unreadable() -> None:
    """Forget the logs of runs that are not the last of an app."""
    later = DeployRun.alias()
    has_app = Deploy.select().where(Deploy.app_id == DeployRun.app_id)
    has_later = later.select().where(
        (later.app_id == DeployRun.app_id) & (later.version > DeployRun.version))
    unreadable = DeployRun.select(DeployRun.id).where(
        DeployRun.id.in_(DeployLog.select(DeployLog.run))
        & (~peewee.fn.EXISTS(has_app) | peewee.fn.EXISTS(has_later)))
    with connection():
        DeployLog.delete().where(DeployLog.run.in_(unreadable)).execute()


def size(run: int) -> int:
    """How many bytes of the builder's log are written."""
    with connection():
        last = DeployLog.select().where(DeployLog.run == run).order_by(
            DeployLog.start_byte.desc()).first()
    return int(last.start_byte + last.bytes) if last else 0


def read(run: DeployRun) -> str:
    """All that a run has said so far, and its error at the end."""
    with connection():
        pieces = DeployLog.select().where(DeployLog.run == run.id).order_by(DeployLog.start_byte)
        said = "".join(piece.content for piece in pieces)
    return f"{said}\n{run.error}\n" if run.error else said
