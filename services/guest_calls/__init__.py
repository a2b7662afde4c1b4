"""What a caller does inside a running sandbox: commands, files, its disk; and that it stays awake
meanwhile.

Bytes go straight to the guest, never through a queue. It decides which calls a sandbox takes in
which state; it starts and ends no sandbox.
"""
