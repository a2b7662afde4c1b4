"""The wire and the clockwork: Celery, the outbox relay, the beat schedule and the bodies of the
control jobs."""
