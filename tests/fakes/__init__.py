"""What stands in for the world outside the service: receivers of webhooks, queues, guests."""
