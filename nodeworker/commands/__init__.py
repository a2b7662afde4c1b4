"""What an operator runs on a VM host itself: `python -m nodeworker.commands.<name>`."""
