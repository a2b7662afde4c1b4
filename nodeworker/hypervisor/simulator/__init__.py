"""Guests of the simulated driver: a file tree and a handful of commands behind the agent's wire
protocol."""
