"""What is shown of an error, on every host."""
from app.schemas import answers
from app.schemas.answers import Answer, whole


class ErrorAnswer(Answer):
    """What went wrong, and what to do about it."""

    error = answers.Text(read=whole)
