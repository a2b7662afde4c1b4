"""Make the driver that the settings name."""
from config.settings import Settings
from nodeworker.hypervisor.driver import Driver


def make_driver(settings: Settings) -> Driver:
    """The driver for `settings.driver`: `qemu` (real VMs, needs root) or `simulated`. Raises
    ValueError for another."""
    if settings.driver == "qemu":
        from nodeworker.hypervisor.qemu.driver import QemuDriver

        return QemuDriver(settings)
    if settings.driver == "simulated":
        from nodeworker.hypervisor.simulated.driver import SimulatedDriver

        return SimulatedDriver(settings)
    raise ValueError(f"SVC_DRIVER must be qemu or simulated, not {settings.driver!r}")
