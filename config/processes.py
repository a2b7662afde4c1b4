"""Which account each process runs as, and which settings it is told: the one table, for `make up`
and for the exported units.

A process is told nothing else, so what it is not told it cannot give away. A setting that a process
reads is in its row; `tests/unit/house/test_processes.py` compares the rows with the code.
"""
from dataclasses import dataclass
from typing import Any

ROOT_ACCOUNT = "root"
# Every process: where the stack is, which also tells to which stack a process belongs.
_EVERY = ("data_dir", "log_level")
_ROWS = ("database_url", "db_pool_size")
_BROKER = ("redis_url",)
_TICKS = ("deploy_sweep_s", "idle_sweep_s", "operation_sweep_s", "usage_sample_s", "disk_sample_s",
          "store_sweep_s", "webhook_sweep_s")
# Whether there is an LLM proxy, and what makes the secret of a sandbox.
_LLM = ("llm_config", "guest_secret")
_DEADLINES = ("boot_deadline_s", "archive_timeout_s", "operation_sweep_s", "operation_lease_s")

# What a node worker needs of root: namespaces, taps, the packet policy, control groups, files and
# processes of the accounts that its machines run under.
NODE_CAPABILITIES = (
    "chown", "dac_override", "dac_read_search", "fowner", "fsetid", "ipc_lock", "kill", "mknod",
    "net_admin", "net_bind_service", "net_raw", "setgid", "setpcap", "setuid", "sys_admin",
    "sys_chroot", "sys_nice", "sys_ptrace", "sys_resource",
)


@dataclass(frozen=True)
class Process:
    """A row: the account, the fields of `Settings` it is told, the one directory it writes (a name
    under SVC_DATA_DIR), the one of another process that it reads, and the capabilities it keeps.
    What is in a `shown` directory is public."""

    account: str
    settings: frozenset[str]
    directory: str = ""
    reads: str = ""
    shown: bool = False
    capabilities: tuple[str, ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """The names of its settings in the environment."""
        return frozenset(f"SVC_{name.upper()}" for name in self.settings)

    @property
    def is_root(self) -> bool:
        return self.account == ROOT_ACCOUNT


def _row(account: str, *settings: str, **more: Any) -> Process:
    return Process(account, frozenset({*_EVERY, *settings}), **more)


_NODE = _row(
    ROOT_ACCOUNT, *_ROWS, *_BROKER, *_DEADLINES, *_LLM, "s3_url", "s3_bucket", "s3_access_key",
    "s3_secret_key", "s3_ca_file", "operation_attempts", "operation_wait_s",
    "readiness_wait_s", "preset_build_wait_s", "preset_verify_s", "archive_max_mb",
    "snapshot_days", "store_grace_s", "node_id", "node_address", "node_dir", "image_dir",
    "net_prefix", "ram_spares", "warm_spares", "prepared_processes", "kept_machines", "kept_s",
    "driver", "accelerator", "emulated_aslr",
    "machine", "guest_distro", "guest_dns", "bake_sizes", "node_vcpus", "node_mem_mb",
    "vcpu_overcommit", "mem_overcommit", "oversell", "ram_share", "strained_idle_s",
    "node_heartbeat_s", "node_dead_after_s", "reconcile_s", "orphan_grace_s", "orphan_brake",
    "host_ports", "agent_ports", "agent_sources", "edge_sources", "guest_gateway_port",
    "disk_floor_mb",
    "slot_network", "slot_pool", "vm_uid_base", "chain_depth_limit", "simulated_latency_ms",
    "simulated_disk_mb", "simulated_failures", "ops_concurrency", "list_rates", "vm_io_mb_s",
    "vm_iops", "presets",
    "ctl_concurrency", "archive_concurrency", "owner_share", "open_operations",
    "archive_min_kib_per_s", "builder_size", "deploy_concurrency", "deploy_files_most",
    "deploy_mb_most", "deploy_ready_s", "deploy_fence_s", "deploy_drain_s", "runtime_idle_s",
    "static_collect_s", "port_rest_s", "idle_timeout_s", "variables_secret",
    capabilities=NODE_CAPABILITIES,
)

PROCESSES: dict[str, Process] = {
    "api": _row(
        "svc-api", *_ROWS, *_BROKER, *_DEADLINES, *_LLM, "api_url", "api_bind", "api_workers",
        "api_threads", "shell_port", "guest_gateway_port", "buffer_mb", "head_s", "body_silence_s",
        "upload_max_bytes",
        "sandbox_rate_per_s", "sandbox_rate_burst", "browser_origins", "auth_url", "jwt_algorithms",
        "identity_poll_s", "api_key_limit", "api_keys_per_hour", "idle_timeout_s",
        "operation_wait_s", "open_operations", "readiness_wait_s", "archive_wait_s",
        "preset_build_wait_s", "preset_verify_s",
        "idempotency_hours", "node_dead_after_s",
        "sandbox_quota", "snapshot_quota", "storage_quota_gb", "list_rates", "compute_credit",
        "port_rest_s", "preview_domain", "apps_domain", "edge_port", "deploy_deadline_s",
        "deploy_wait_s", "deploy_drain_s", "static_collect_s", "variables_secret"),
    "identity": _row(
        "svc-identity", *_ROWS, "auth_url", "auth_bind", "buffer_mb", "head_s", "body_silence_s",
        "jwt_algorithms", "signing_keys_dir", "session_secret", "browser_origins", "proxy_hops",
        "edge_secret", "user_jwt_s", directory="keys"),
    "shell": _row(
        "svc-shell", *_ROWS, *_BROKER, *_DEADLINES, *_LLM, "shell_port", "shell_limit",
        "shells_per_owner", "head_s", "sandbox_rate_per_s", "sandbox_rate_burst",
        "body_silence_s", "auth_url", "jwt_algorithms", "identity_poll_s",
        "operation_wait_s", "open_operations", "readiness_wait_s", "node_dead_after_s"),
    "edge": _row(
        "svc-edge", "edge_port", "edge_addresses", "edge_secret", "edge_proxies",
        "edge_requests_per_address", "tls_cert", "tls_key", "certificates_dir",
        "api_url", "api_bind", "auth_url", "auth_bind", "shell_url", "shell_port", "gateway_port",
        "guest_gateway_port",
        "preview_domain", "preview_rewrite_host", "apps_domain", "head_s", "body_silence_s",
        "upload_max_bytes",
        # for port 443
        directory="edge", reads="releases", capabilities=("net_bind_service",)),
    "gateway": _row(
        "svc-gateway", *_ROWS, *_BROKER, *_DEADLINES, "gateway_port", "readiness_wait_s",
        "open_operations", "node_dead_after_s", "port_rest_s"),
    "guest-gateway": _row(
        "svc-guest-gateway", *_ROWS, "guest_gateway_port", "guest_secret", "llm_config", "node_id",
        "auth_url", "jwt_algorithms", "identity_poll_s", "npm_registry", "npm_cache_mb",
        "s3_url", "s3_bucket", "s3_access_key", "s3_secret_key", "s3_ca_file", directory="npm"),
    "releases": _row(
        "svc-releases", *_ROWS, "s3_url", "s3_bucket", "s3_access_key", "s3_secret_key",
        "s3_ca_file", directory="releases", shown=True),
    "control": _row(
        "svc-control", *_ROWS, *_BROKER, *_DEADLINES, "usage_sample_s", "disk_sample_s",
        "store_sweep_s", "idempotency_hours", "operation_days", "snapshot_days",
        "node_dead_after_s", "llm_call_days", "builder_size", "port_rest_s"),
    "webhooks": _row(
        "svc-webhooks", *_ROWS, *_BROKER, "webhook_receiver_url", "webhook_secrets",
        "webhook_waits", "webhook_timeout_s", "webhook_slots", "event_days"),
    "relay": _row("svc-relay", *_ROWS, *_BROKER, "relay_poll_s"),
    "beat": _row("svc-beat", *_ROWS, *_BROKER, *_TICKS, "webhook_receiver_url",
                 "node_dead_after_s", directory="beat"),
    "node-ctl": _NODE,
    "node-ops": _NODE,
    "node-bulk": _NODE,
    "node-archive": _NODE,
    "node-deploy": _NODE,
    "flower": _row("svc-flower", *_BROKER, "flower_port", "flower_basic_auth"),
}
# The object store that a one-box stack brings along; production has one of its own.
STORE = _row("svc-s3", "s3_url", "s3_access_key", "s3_secret_key", directory="s3")


def accounts() -> list[str]:
    """Every account but root, in the order of the table."""
    rows = (*PROCESSES.values(), STORE)
    return list(dict.fromkeys(row.account for row in rows if not row.is_root))
