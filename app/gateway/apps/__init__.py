"""Served apps at the gateway: where requests go, what the edge's workers are told of it, and what
is in flight."""
