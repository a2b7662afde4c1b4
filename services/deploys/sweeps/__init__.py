"""Decides what a tick of beat does with runs that nobody works on: they move to another node, or
are given up."""
