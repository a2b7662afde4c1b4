"""Restores a guest from saved memory, for what wakes a sandbox, creates one or makes a spare."""
