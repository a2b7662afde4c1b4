"""Copies of a sandbox: snapshots that outlive it, and forks that begin in its state.

It decides who may take a copy of what, and what a fork gets of its source. How a copy is written is
the node's business; what is kept of a snapshot, and when it goes, is decided in
`services.snapshots`.
"""
