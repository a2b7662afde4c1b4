"""Asks a guest who it is, and gives it clock, randomness and the identity of its sandbox."""
import base64
import os
from dataclasses import dataclass
from typing import Any

from guest.client.caller import AgentCaller
from guest.client.deadline import Deadline
from guest.client.errors import AgentProtocolError
from guest.client.results import Pong

ENTROPY_BYTES = 64


@dataclass(frozen=True)
class GuestIdentity:
    """What a guest becomes by being adopted; with `renew`, also on its disk (needed for every
    clone). With `rehearse` it soon runs an empty command, unless it is given one before."""

    token: str
    sandbox_id: str
    renew: bool
    env: dict[str, str]
    hostname: str | None = None
    machine_id: str | None = None
    host_key_private: str | None = None
    host_key_public: str | None = None
    rehearse: bool = False


class IdentityCalls(AgentCaller):
    """The agent's `ping` and `adopt`."""

    def ping(self, timeout_s: float = 5.0) -> Pong:
        """Ask the agent who it is."""
        return _pong(self._call("ping", {}, Deadline(timeout_s)))

    def wait_ready(self, timeout_s: float) -> Pong:
        """Ping a guest that is starting, as soon as it accepts connections; raises AgentTimeout
        after `timeout_s`."""
        return _pong(self._call("ping", {}, Deadline(timeout_s), patient=True))

    def adopt(self, identity: GuestIdentity, timeout_s: float = 30.0, *,
              patient: bool = False, keep: bool = False) -> None:
        """Give the guest clock, randomness and identity; afterwards it answers to `identity.token`
        only.

        `patient` dials like `wait_ready`, which saves a round trip right after a restore. `keep`
        leaves the connection open until `close`. May be repeated; after a lost reply either token
        may be the valid one.
        """
        request = {
            "newToken": identity.token,
            "sandboxId": identity.sandbox_id,
            "renew": identity.renew,
            "env": identity.env,
            "hostname": identity.hostname,
            "machineId": identity.machine_id,
            "hostKeyPrivate": identity.host_key_private,
            "hostKeyPublic": identity.host_key_public,
            "rehearse": identity.rehearse,
            "entropy": base64.b64encode(os.urandom(ENTROPY_BYTES)).decode(),
        }
        reply = self._call("adopt", request, Deadline(timeout_s), patient=patient,
                           stamp_clock=True, keep=keep)
        if reply.get("adopted") != identity.sandbox_id:
            raise AgentProtocolError("the guest agent confirmed another identity than it was given")
        self._token = identity.token


def _pong(reply: dict[str, Any]) -> Pong:
    adopted = reply.get("adopted")
    return Pong(
        agent_version=str(reply.get("agentVersion"))[:40], boot_id=str(reply.get("bootId"))[:40],
        adopted=None if adopted is None else str(adopted)[:200],
    )
