"""What a build may take of its machine: it is a unit of the guest's systemd, with a most for its
processes and its memory, and less of the processors than the agent. One that forks for ever fails,
and the agent goes on answering.
"""

_UNIT = "svc-build"
# Of the processors the agent has twice as much, which is what units have by default.
_PROCESSES_MOST, _MEMORY_MOST, _CPU_WEIGHT = 1024, "90%", 50

# What comes before the command of a build, in a line of the guest's shell.
LIMITED = (f"systemd-run --scope --quiet --collect --unit {_UNIT} -p TasksMax={_PROCESSES_MOST}"
           f" -p MemoryMax={_MEMORY_MOST} -p CPUWeight={_CPU_WEIGHT}")
# Kills what is left of it.
KILL = f"systemctl kill --signal=KILL {_UNIT}.scope"
