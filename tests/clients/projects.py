"""Projects of a simulated stack: what simulated guests build, see
`nodeworker/hypervisor/simulated/deploys.py`."""
import json
from collections.abc import Mapping

from tests.stack.personas import Persona


def static_site(name: str, build: str = "true") -> dict[str, str]:
    """A page that says its name, and a script of that name."""
    return {"svc.json": json.dumps({"build": build}), "dist/index.html": name,
            f"dist/assets/{name}.js": name}


def served_by(port: int, **svc: str) -> dict[str, str]:
    """An app that a server of this host answers for; `svc` is what else svc.json says."""
    return {"svc.json": json.dumps({"start": f"serve 3000 0 {port}", **svc})}


def snapshot(persona: Persona, files: Mapping[str, str]) -> str:
    """Id of a snapshot of a sandbox with these files, which is gone by then."""
    sandbox = persona.create()["id"]
    persona.write(sandbox, files)
    taken = persona.post(f"/v1/sandboxes/{sandbox}/snapshot", json={}).raise_for_status()
    persona.delete(f"/v1/sandboxes/{sandbox}").raise_for_status()
    return str(taken.json()["id"])
