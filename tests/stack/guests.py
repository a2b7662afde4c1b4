"""Lets a sandbox of a running stack have another guest than its own."""
import contextlib

import psycopg2


def point_at(stack, sandbox_id, port):
    """From now on the agent of the sandbox is whatever listens on `port` of this machine."""
    with contextlib.closing(
        psycopg2.connect(stack.site.values["SVC_DATABASE_URL"])
    ) as link, link, link.cursor() as cursor:
        cursor.execute("UPDATE sandboxes SET agent_port = %s WHERE id = %s", (port, sandbox_id))
