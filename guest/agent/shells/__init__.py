"""Shells on terminals of their own."""
