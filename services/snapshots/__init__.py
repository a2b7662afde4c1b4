"""The life of a snapshot: its row, its owner, its copy in the object store, and its end.

It decides who may see a snapshot, how its row begins and ends, and when files and objects may go.
Capturing is an operation of the sandbox: `services.sandboxes.copies.capture`. The names that
templates give to snapshots are in `services.templates`.
"""
