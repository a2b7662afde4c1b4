"""Rows and host are compared, and what differs is mended."""
