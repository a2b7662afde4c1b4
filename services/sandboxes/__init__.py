"""Sandboxes from the first request to the last: created, found, listed, hibernated, woken,
captured, forked, stopped.

It decides what a caller may ask of a sandbox in which state, and what the end of an operation means
for its row. How an operation is handed to a worker is in `services.operations`, where it runs in
`services.hosts`.
"""
