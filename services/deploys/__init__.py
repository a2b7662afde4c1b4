"""Decides what is served at an app's address, and how a snapshot becomes a new version of it.

A run builds, stores and publishes one version; it is claimed under an epoch as an operation is, and
drives the sandbox it needs by ordinary operations. What is live changes in one transaction, at a
run's end, and nothing else changes it. How files are built, stored and served is not decided here.
"""
