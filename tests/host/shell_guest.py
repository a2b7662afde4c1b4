"""A real agent on this machine as the guest of a sandbox of the simulated stack: real terminals."""
import contextlib
import os
import tempfile
from pathlib import Path

import psycopg2

from tests.host.agent_process import TOKEN, start_agent, stop_agent

USER = 1000


@contextlib.contextmanager
def running_agent():
    """A running agent whose root its user may walk through."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for directory in ("opt/svc", "home/user", "etc/ssh", "run", "var/log"):
            (root / directory).mkdir(parents=True)
        root.chmod(0o755)
        (root / "opt/svc/initial-token").write_text(TOKEN + "\n")
        profile = root / "home/user/.profile"
        (root / "etc/passwd").write_text(f"me:x:{USER}:{USER}::{profile.parent}:/bin/bash\n")
        # The host's own profile may have commands speak to the terminal (Ubuntu 26.04). A shell
        # that is hung up would write down its history, into a home that is being removed by then.
        profile.write_text("PS1='$ '; unset PS0 PROMPT_COMMAND HISTFILE\n")
        for path in (profile.parent, profile):
            os.chown(path, USER, USER)
        running = start_agent(root)
        try:
            yield running
        finally:
            stop_agent(running)


def point_at(stack, sandbox_id, agent):
    """From now on the guest of the sandbox is that agent."""
    with contextlib.closing(
        psycopg2.connect(stack.site.values["SVC_DATABASE_URL"])
    ) as link, link, link.cursor() as cursor:
        cursor.execute("UPDATE sandboxes SET agent_port = %s, agent_token = %s WHERE id = %s",
                       (agent.port, TOKEN, sandbox_id))
