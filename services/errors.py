"""What can go wrong with a request, named by what happened; each carries the HTTP status the
contract gives it.

The text of every one of them is shown to the client, so it never holds secrets, host paths or
another owner's data.
"""


class ServiceError(Exception):
    """Base: `status` is the HTTP status, `retry_after_s` becomes a Retry-After header when set."""

    status = 500

    def __init__(self, text: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.retry_after_s = retry_after_s


class InvalidRequest(ServiceError):
    """The body or a parameter breaks a rule."""

    status = 400


class Unauthenticated(ServiceError):
    """No credential, or one that is unknown, malformed, revoked or expired."""

    status = 401


class PlanRequired(ServiceError):
    """The owner's plan does not include what was asked for."""

    status = 402


class InsufficientCredit(ServiceError):
    """The account's compute credit of this month is used up."""

    status = 402


class Forbidden(ServiceError):
    """A valid credential that does not own the resource, or is of a kind this route does not
    take."""

    status = 403


class NotFound(ServiceError):
    """There is no such resource."""

    status = 404


class Conflict(ServiceError):
    """The resource is in a state that does not allow this, or an idempotency key was used for
    something else."""

    status = 409


class Gone(ServiceError):
    """The resource was there once and never comes back."""

    status = 410


class TooLarge(ServiceError):
    """More bytes than the route takes."""

    status = 413


class WrongNode(ServiceError):
    """`X-Svc-Node` names a node that does not hold the sandbox."""

    status = 421


class UpgradeRequired(ServiceError):
    """A request to a WebSocket route that is not, or not rightly, the beginning of one."""

    status = 426


class RateLimited(ServiceError):
    """Too many requests of this kind."""

    status = 429


class Unavailable(ServiceError):
    """No capacity, or something the service depends on does not answer; trying again later may
    work."""

    status = 503
