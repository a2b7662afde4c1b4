"""What starts the agent server of a sandbox, apart from the sandbox's row, which is read far more
often."""
import peewee

from models.database import JsonField, Row


class AgentServer(Row):
    """The agent server of one sandbox. `bootstrap` holds its callback token, and goes when the
    sandbox stops; `source` stays for forks of its snapshots."""

    sandbox_id = peewee.TextField(primary_key=True)
    source = peewee.TextField(null=True)
    bootstrap = JsonField(null=True)

    class Meta:
        table_name = "agent_servers"
