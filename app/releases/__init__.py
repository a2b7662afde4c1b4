"""Keeps the directory from which this host's nginx serves static apps: fetches versions from the
object store before they go live, and changes links when they do.

It decides nothing: what is live says the app's row. The directory may be lost at any time; it is
made again from rows and store.
"""
