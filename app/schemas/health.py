"""What a process says that can do its work."""
from app.schemas import answers
from app.schemas.answers import Answer


class HealthAnswer(Answer):
    """This process can do its work."""

    status = answers.constant("ok")
