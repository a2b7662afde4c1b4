"""Drivers that turn a sandbox into a virtual machine; they know no rows, no services and no
Celery."""
