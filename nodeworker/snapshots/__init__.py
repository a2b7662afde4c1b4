"""Carries the disks of snapshots between this host and the object store, and removes what no
snapshot needs.

What is stored, and when it goes, is decided in `services/snapshots/`; every step here may be run
again after a `kill -9` at any instruction.
"""
