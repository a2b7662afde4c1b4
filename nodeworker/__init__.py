"""The VM host: Celery workers that run lifecycle operations on real virtual machines."""
