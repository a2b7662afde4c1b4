"""Settings of time for a stack whose processes tests kill."""

# What repairs itself within seconds does so within fewer. For keys and revocations every process
# asks by itself; if each did so every second, an idle stack would take 6.6 % of a core, not 5.0.
QUICK = {
    "SVC_OPERATION_LEASE_S": "2",
    "SVC_OPERATION_SWEEP_S": "0.5",
    "SVC_RECONCILE_S": "1",
    "SVC_USAGE_SAMPLE_S": "1",
    "SVC_ORPHAN_GRACE_S": "3",
    "SVC_NODE_HEARTBEAT_S": "1",
    "SVC_IDENTITY_POLL_S": "5",
}
# Of a stack whose guests need the CPU: half as often, and keys as shipped.
BESIDE_GUESTS = {
    **QUICK,
    "SVC_IDENTITY_POLL_S": "30",
    "SVC_OPERATION_SWEEP_S": "1",
    "SVC_RECONCILE_S": "2",
    "SVC_USAGE_SAMPLE_S": "2",
    "SVC_NODE_HEARTBEAT_S": "2",
}
