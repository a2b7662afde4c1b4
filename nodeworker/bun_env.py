"""With which variables Bun runs best in a guest of this host: agents and builds run on it."""
from nodeworker.wiring import NodeDeps

# Bun's second optimising compiler costs an emulated guest more than it saves: an agent starts and a
# build ends in half to two thirds of the time without it.
_EMULATED = {"BUN_JSC_useDFGJIT": "0"}


def bun_env(deps: NodeDeps) -> dict[str, str]:
    """Variables with which Bun runs best on this host."""
    return _EMULATED if deps.driver.host_tuple().accelerator == "tcg" else {}
