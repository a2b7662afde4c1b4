"""The QEMU driver: every sandbox is one unprivileged QEMU process whose RAM is a file."""
