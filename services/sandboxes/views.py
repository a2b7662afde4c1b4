"""What the use cases hand to a caller: frozen records, free of secrets, ready to be serialised."""
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from models.sandboxes import Sandbox
from services.hosts.sandbox_ports import tenant_ports
from services.templates.presets import PRESETS, serves


@dataclass(frozen=True)
class SandboxView:
    """The contract's Sandbox; `port_map` maps host ports to guest ports. From `template` on it is
    of the agent preset, if it has one."""

    id: str
    status: str
    cwd: str
    vm_ip: str
    port_map: dict[int, int]
    created_at: datetime
    preferred_model: str
    node_id: str
    error: str | None = None
    template: str | None = None
    template_status: str | None = None
    install_log_path: str | None = None
    serve_port: int | None = None
    serve_log_path: str | None = None
    bootstrap_error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A form that survives a JSON column; `from_json` reads it back."""
        return asdict(self) | {"created_at": self.created_at.isoformat()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SandboxView":
        """The view that `to_json` wrote (JSON turned the integer keys into text)."""
        return cls(
            **data
            | {
                "created_at": datetime.fromisoformat(data["created_at"]),
                "port_map": {int(host): guest for host, guest in data["port_map"].items()},
            }
        )


def sandbox_view(row: Sandbox) -> SandboxView:
    """The view of a row as it is now; reads the port bindings."""
    return view_of(row, tenant_ports(row))


def view_of(row: Sandbox, port_map: dict[int, int]) -> SandboxView:
    """The view of a row with these ports, host -> guest."""
    return SandboxView(
        id=row.id,
        status=row.status,
        cwd=row.cwd,
        vm_ip=row.vm_ip,
        port_map=port_map,
        created_at=row.created_at,
        preferred_model=row.preferred_model,
        node_id=row.node_id,
        error=row.error,
        **_preset_view(row),
    )


def _preset_view(row: Sandbox) -> dict[str, Any]:
    """What is shown of the agent preset."""
    if row.preset is None:
        return {}
    preset = PRESETS[row.preset]
    shown = {"template": row.preset, "template_status": row.preset_state,
             "install_log_path": preset.install_log_path, "bootstrap_error": row.preset_error}
    if preset.service is not None and serves(row):
        shown |= {"serve_port": preset.service.port, "serve_log_path": preset.service.log_path}
    return shown
