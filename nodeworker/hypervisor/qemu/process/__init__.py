"""One QEMU process: its command line, its start and end, its monitor, its limits and its
accounts."""
