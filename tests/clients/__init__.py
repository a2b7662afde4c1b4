"""Clients of the service that are more than a request: what tests speak to it with."""
