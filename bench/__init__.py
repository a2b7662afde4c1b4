"""Figures of a running stack beside the floor measured in the same run: `make bench`."""
