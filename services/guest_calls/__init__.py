"""Calls into a running sandbox: commands, files and the size of its disk.

It decides which calls a sandbox takes in which state, and keeps it awake while a call runs. Bytes
go straight to the guest, never through a queue. It starts and ends no sandbox.
"""
