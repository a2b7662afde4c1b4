"""Tells the hosts at the edge what they serve, and hears from them how far they are."""
