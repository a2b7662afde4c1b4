"""One who publishes templates and creates sandboxes from them."""
from models.database import connection
from models.ids import new_id
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import SnapshotState

SERVE = {"startCommand": "serve", "readinessPort": 3000, "ports": [3000, 4000]}


class Caller:
    """One who publishes and creates; `owner` None is a service that acts for nobody."""

    def __init__(self, edge, owner, headers):
        self.edge, self.owner, self.headers = edge, owner, headers

    def snapshot(self, vcpus=1, mem_mb=1024, **changes):
        """A ready snapshot of a sandbox of one's own (a service's: of anybody's)."""
        owner = self.owner or self.edge.newcomer()
        with connection():
            source = Sandbox.create(id=new_id(), owner=owner.id, node_id="n1", vcpus=vcpus,
                                    mem_mb=mem_mb, agent_port=1, agent_token="x", idle_timeout_s=60,
                                    status="stopped")
            values = {
                "id": new_id("snap"), "owner": owner.id, "node_id": "n1",
                "source_sandbox_id": source.id, "vcpus": vcpus, "mem_mb": mem_mb, "cwd": "/srv",
                "state": SnapshotState.READY, "env": {"FROM": "source", "BOTH": "source"}
            }
            return Snapshot.create(**values | changes).id

    def publish(self, name, **body):
        return self._send("POST", f"/v1/templates/{name}/latest", body)

    def get(self, name):
        return self._send("GET", f"/v1/templates/{name}/latest")

    def delete(self, name):
        return self._send("DELETE", f"/v1/templates/{name}/latest")

    def create(self, pin=None, **body):
        return self._send("POST", "/v1/sandboxes", body, {"X-Svc-Node": pin} if pin else {})

    def _send(self, method, path, body=None, more=()):
        return self.edge.client().open(path, method=method, json=body,
                                       headers=self.headers | dict(more))


def row(answer):
    assert answer.status_code == 201, answer.text
    with connection():
        return Sandbox.get_by_id(answer.json["id"])
