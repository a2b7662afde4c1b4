"""What the fixtures of conftest.py are made of."""
