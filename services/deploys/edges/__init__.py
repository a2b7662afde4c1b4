"""Tells the hosts at the edge what they serve, and hears from them how far they are.

It decides which files and routes an edge is to have, and whether all edges have them. It does not
decide what is live: that is `services.deploys.publishing`, which asks here first. Edges fetch files
and carry requests by themselves (`app/releases`, `app/gateway`).
"""
