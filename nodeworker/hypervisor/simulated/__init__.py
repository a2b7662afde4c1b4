"""A hypervisor in memory, for API tests, runs of scale and a laptop without root: the driver, and
the process that holds its guests behind the agent's wire protocol."""
