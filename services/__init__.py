"""The rules: use cases over rows. No Flask, no Celery, no subprocess; the outside world only
through `protocols`."""
