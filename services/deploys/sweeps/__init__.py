"""Decides what a tick of beat does with runs that nobody works on: they move to another node, or
are given up.

It decides which runs those are and where they go. A run that somebody holds is left alone until its
lease is over. What a failed run leaves behind is decided in `services.deploys.failed_runs`, when
ticks come in `tasks/schedule.py`.
"""
