"""All settings of the service: one frozen, typed object, read once from SVC_* variables.

Every field is the variable `SVC_<FIELD NAME IN CAPITALS>`; a bad value stops the process at start
with one sentence. `config/example.env` documents each of them, and a test holds the two together.
"""
import dataclasses
import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from config.parse_values import (
    amounts,
    counts,
    flag,
    integers,
    ipv4,
    ipv4_network,
    names,
    networks,
    number,
    numbers,
    origins,
)
from config.settings_checks import check


class SettingsError(Exception):
    """A variable is missing or malformed; the text says which and what was expected."""


_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: number,
    bool: flag,
    Path: lambda text: Path(text).absolute(),
    tuple[int, ...]: integers,
    tuple[float, ...]: numbers,
    tuple[str, ...]: names,
    dict[str, Decimal]: amounts,
    dict[str, int]: counts,
}
# Fields whose values have a form of their own.
_PARSERS_BY_NAME: dict[str, Callable[[str], Any]] = {
    "browser_origins": origins, "edge_proxies": networks, "node_address": ipv4,
    "slot_network": ipv4_network}


# 0.05 for a virtual CPU and 0.016 for a GiB of memory, per hour.
_LIST_RATES = (
    "small=0.066,medium=0.132,large=0.264,standard=0.164,pro=0.328,xlarge=0.656,fleet=1.176"
)
_SANDBOX_QUOTA = (
    "starter=50,starter_plus=100,personal=500,pro=1000"
    ",always_on=2000,legacy_pro=1000,legacy_max=2000"
)
_SNAPSHOT_QUOTA = (
    "starter=100,starter_plus=200,personal=1000,pro=2000"
    ",always_on=4000,legacy_pro=2000,legacy_max=4000"
)
_STORAGE_QUOTA_GB = (
    "starter=500,starter_plus=1000,personal=2000,pro=5000"
    ",always_on=10000,legacy_pro=5000,legacy_max=10000"
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Typed settings; units are in the names (`_s` seconds, `_ms` milliseconds, `_mb` MiB,
    `_bytes`)."""

    # Where things are
    data_dir: Path = Path("var")
    database_url: str = "postgresql://svc@127.0.0.1:15432/svc"
    redis_url: str = "redis://127.0.0.1:16379/0"
    api_url: str = "http://127.0.0.1:18080"
    auth_url: str = "http://127.0.0.1:18081"
    shell_url: str = "wss://shell.localhost:8443"
    s3_url: str = "http://127.0.0.1:19000"
    s3_bucket: str = "svc"
    s3_access_key: str = ""
    s3_secret_key: str = ""
    s3_ca_file: str = ""
    log_level: str = "INFO"

    # The edge: nginx before everything that browsers and clients reach
    edge_port: int = 8443
    edge_addresses: tuple[str, ...] = ("127.0.0.1", "[::1]")
    edge_secret: str = ""
    edge_proxies: tuple[str, ...] = ()
    edge_requests_per_address: int = 1000
    gateway_port: int = 18083
    guest_gateway_port: int = 18084
    shell_port: int = 18082
    preview_domain: str = "preview.localhost"
    preview_rewrite_host: bool = False
    apps_domain: str = "apps.localhost"
    tls_cert: str = ""
    tls_key: str = ""
    certificates_dir: str = ""
    ca_file: str = ""

    # HTTP processes
    api_bind: str = ""
    auth_bind: str = ""
    api_workers: int = 2
    api_threads: int = 400
    buffer_mb: int = 512
    head_s: float = 10.0
    body_silence_s: float = 30.0
    shell_limit: int = 400
    shells_per_owner: int = 100
    upload_max_bytes: int = 512 * 1024 * 1024
    db_pool_size: int = 20
    sandbox_rate_per_s: float = 0.0
    sandbox_rate_burst: int = 60

    # Identity
    jwt_algorithms: tuple[str, ...] = ("EdDSA",)
    signing_keys_dir: Path = Path("var/keys")
    session_secret: str = ""
    browser_origins: tuple[str, ...] = ()
    proxy_hops: int = 0
    key_publish_s: float = 120.0
    identity_poll_s: float = 30.0
    user_jwt_s: int = 900
    service_token_s: int = 365 * 24 * 3600
    api_key_limit: int = 10
    api_keys_per_hour: int = 5

    # Lifecycle
    idle_timeout_s: int = 600
    operation_lease_s: float = 10.0
    operation_attempts: int = 4
    operation_wait_s: float = 60.0
    open_operations: int = 200
    boot_deadline_s: float = 600.0
    readiness_wait_s: float = 60.0
    preset_build_wait_s: float = 60.0
    preset_verify_s: float = 300.0
    archive_wait_s: float = 300.0
    archive_timeout_s: float = 900.0
    archive_max_mb: int = 20480
    archive_min_kib_per_s: int = 64
    idle_sweep_s: float = 2.0
    operation_sweep_s: float = 3.0
    relay_poll_s: float = 2.0
    idempotency_hours: int = 24
    operation_days: int = 30
    snapshot_days: int = 0
    store_sweep_s: float = 3600.0
    store_grace_s: float = 3600.0
    disk_sample_s: float = 60.0

    # The VM host
    node_id: str = "node-1"
    node_address: str = "127.0.0.1"
    node_dir: Path = Path("var/node")
    image_dir: Path = Path("var/images")
    net_prefix: str = "svc"
    ram_spares: int = 1
    warm_spares: int = 2
    prepared_processes: int = 2
    kept_machines: int = 16
    kept_s: float = 900.0
    emulated_aslr: bool = False
    driver: str = "qemu"
    accelerator: str = "auto"
    machine: str = "auto"
    guest_distro: str = "ubuntu-22.04"
    bake_sizes: tuple[str, ...] = ("small",)
    presets: tuple[str, ...] = ("opencode", "pi", "codex", "claude", "lfg")
    node_vcpus: int = 0
    node_mem_mb: int = 0
    vcpu_overcommit: float = 8.0
    mem_overcommit: float = 1.0
    oversell: float = 8.0
    ram_share: float = 0.25
    strained_idle_s: float = 120.0
    node_heartbeat_s: float = 3.0
    node_dead_after_s: float = 15.0
    reconcile_s: float = 5.0
    orphan_grace_s: float = 30.0
    orphan_brake: int = 20
    disk_floor_mb: int = 4096
    vm_io_mb_s: int = 500
    vm_iops: int = 20000
    host_ports: tuple[int, ...] = (20000, 29999)
    agent_ports: tuple[int, ...] = (30000, 32699)
    agent_sources: tuple[str, ...] = ()
    edge_sources: tuple[str, ...] = ()
    port_rest_s: float = 60.0
    slot_network: str = "10.201.0.0/16"
    slot_pool: int = 3
    vm_uid_base: int = 900000
    guest_dns: tuple[str, ...] = ("1.1.1.1", "8.8.8.8")
    chain_depth_limit: int = 8
    simulated_latency_ms: int = 0
    simulated_disk_mb: int = 16384
    simulated_failures: tuple[str, ...] = ()
    ctl_concurrency: int = 8
    ops_concurrency: int = 4
    archive_concurrency: int = 16
    owner_share: float = 0.75

    # Webhooks
    webhook_receiver_url: tuple[str, ...] = ()
    webhook_secrets: tuple[str, ...] = ()
    webhook_waits: tuple[float, ...] = (1.0, 5.0, 20.0)
    webhook_timeout_s: float = 10.0
    webhook_sweep_s: float = 0.2
    webhook_slots: int = 256
    event_days: int = 30

    # Usage and what it costs, in a currency of your own
    usage_sample_s: float = 5.0
    list_rates: dict[str, Decimal] = dataclasses.field(
        default_factory=lambda: amounts(_LIST_RATES)
    )
    compute_credit: dict[str, Decimal] = dataclasses.field(default_factory=dict)
    sandbox_quota: dict[str, int] = dataclasses.field(
        default_factory=lambda: counts(_SANDBOX_QUOTA))
    snapshot_quota: dict[str, int] = dataclasses.field(
        default_factory=lambda: counts(_SNAPSHOT_QUOTA))
    storage_quota_gb: dict[str, int] = dataclasses.field(
        default_factory=lambda: counts(_STORAGE_QUOTA_GB))

    # Guest gateway and LLM proxy
    guest_secret: str = ""
    llm_config: str = ""
    llm_call_days: int = 30

    # Deploys
    builder_size: str = "medium"
    npm_registry: str = ""
    npm_cache_mb: int = 8192
    deploy_deadline_s: float = 1800.0
    deploy_wait_s: float = 900.0
    deploy_files_most: int = 20000
    deploy_mb_most: int = 1024
    deploy_concurrency: int = 8
    deploy_sweep_s: float = 5.0
    deploy_ready_s: float = 30.0
    deploy_fence_s: float = 30.0
    deploy_drain_s: float = 30.0
    runtime_idle_s: int = 600
    static_collect_s: float = 90.0
    variables_secret: str = ""

    # Flower
    flower_port: int = 15555
    flower_basic_auth: str = ""


def load(environ: Mapping[str, str]) -> Settings:
    """Build settings from `environ`; raises SettingsError naming the first bad variable."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        name = f"SVC_{field.name.upper()}"
        if name not in environ:
            continue
        try:
            parse = _PARSERS_BY_NAME.get(field.name) or _PARSERS[field.type]
            values[field.name] = parse(environ[name])
        except ValueError as error:
            raise SettingsError(f"{name} is not valid: {error}. See config/example.env.") from error
    settings = Settings(**values)
    try:
        check(settings)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return settings


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings of this process, read from its environment on first use."""
    return load(os.environ)
