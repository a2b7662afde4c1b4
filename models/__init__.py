"""Rows of the database and their migrations; knows nothing of HTTP, queues or virtual machines."""
