"""The host's client of one guest agent, all its calls in one class."""
from guest.client.execs import ExecCalls
from guest.client.files import FileCalls
from guest.client.identity import IdentityCalls
from guest.client.shells import ShellCalls
from guest.client.upkeep import UpkeepCalls


class AgentClient(ExecCalls, FileCalls, IdentityCalls, ShellCalls, UpkeepCalls):
    """Talks to the agent at `host:port` with `token`; opens nothing until it is called.

    Every call has its own connection (but for an `exec` that keeps it), a total deadline and caps
    of its own, and raises what `guest.client.errors` lists. Only an open shell goes on after its
    call.
    """
