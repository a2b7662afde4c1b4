"""Accounts: made by an operator, signed in with an e-mail address and a password."""
import peewee

from models.database import connection, database, now
from models.ids import new_id
from models.row import Statement
from models.states import Plan
from models.users import Session, User
from services.accounts import passwords
from services.errors import Conflict, InvalidRequest, NotFound, Unauthenticated

# The hash of a random password that nobody knows. It is verified when there is no such account, so
# that the time an answer takes does not tell who has one. It is a constant, because making one
# takes a fifth of a second, which every process would spend at its start.
NOBODY = ("$argon2id$v=19$m=65536,t=3,p=4$A+7A9eW7PX5ONTvQzMsOxA"
          "$cd6OsXMCBkWnaJHmh8B78NErpEbIZzkJ75eAluSbWOY")
# At every request with a token that speaks for an account.
_ENABLED = Statement(
    User, lambda user_id: User.select().where((User.id == user_id) & User.disabled_at.is_null()),
    prepared=True)


def normal_email(email: str) -> str:
    """The form under which an address is stored and compared; raises InvalidRequest if it is
    none."""
    text = email.strip().lower()
    name, at, host = text.partition("@")
    if not (name and at and host) or len(text) > 254 or any(sign.isspace()
                                                            for sign in text) or "\0" in text:
        raise InvalidRequest("email is not an e-mail address")
    return text


def create(email: str, password: str, plan: Plan) -> User:
    """Make an account; raises Conflict if the address has one, InvalidRequest for a password of the
    wrong length."""
    passwords.check_length(password)
    address, password_hash = normal_email(email), passwords.make_hash(password)
    with connection():
        try:
            return User.create(id=new_id("usr"), email=address, password_hash=password_hash,
                               plan=plan.value)
        except peewee.IntegrityError as error:
            raise Conflict(f"There is an account {address} already.") from error


def find(user_id: str) -> User | None:
    """The account with this id, unless it does not exist or is disabled."""
    with connection():
        found: User | None = _ENABLED.find(user_id)
        return found


def find_by_email(email: str) -> User | None:
    """The account of an address, disabled or not."""
    with connection():
        return User.get_or_none(User.email == normal_email(email))


def get_by_email(email: str) -> User:
    """The account of an address; raises NotFound."""
    user = find_by_email(email)
    if user is None:
        raise NotFound(f"There is no account {email}.")
    return user


def get_named(name: str) -> User:
    """The account with this id or address, the service's own (`svc-deploys`), which has no address,
    among them; raises NotFound."""
    text = name.strip()
    with connection():
        user = User.get_or_none((User.id == text) | (User.email == text.lower()))
    if user is None:
        raise NotFound(f"There is no account {name}.")
    return user


def sign_in(email: str, password: str) -> User:
    """The account, if the password is right; raises Unauthenticated without saying which of the two
    was wrong, and Unavailable if too many sign in at once: then no password was looked at."""
    try:
        user = find_by_email(email)
    except InvalidRequest:
        user = None
    known = user is not None and user.disabled_at is None
    password_hash = user.password_hash if user is not None and known else NOBODY
    if not passwords.matches(password_hash, password) or not known:
        raise Unauthenticated("Wrong e-mail address or password.")
    assert user is not None
    return user


def set_password(user: User, password: str) -> None:
    """Replace the password, which ends every session of the account."""
    passwords.check_length(password)
    password_hash = passwords.make_hash(password)
    with connection(), database.atomic():
        User.update(password_hash=password_hash).where(User.id == user.id).execute()
        Session.delete().where(Session.user == user.id).execute()


def set_disabled(user: User, *, disabled: bool) -> None:
    """Shut an account out with every credential it has, or let it in again; its sandboxes stay what
    they are."""
    with connection(), database.atomic():
        User.update(disabled_at=now() if disabled else None).where(User.id == user.id).execute()
        if disabled:
            Session.delete().where(Session.user == user.id).execute()


def list_all() -> list[User]:
    """Every account, oldest first."""
    with connection():
        return list(User.select().order_by(User.created_at, User.id))


def set_plan(user: User, plan: Plan) -> None:
    """Put the account on another plan; sandboxes it has keep their machines."""
    with connection():
        User.update(plan=plan.value).where(User.id == user.id).execute()
