"""Does the work of deploys on a VM host: builds in a builder, stores what was built.

What a run may do next is decided in `services/deploys/`; every step here may be run again after a
`kill -9` at any instruction, and by another worker.
"""
