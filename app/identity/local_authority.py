"""What verifying a token rests on where the identity host's own files and rows are at hand."""
from app.identity.signing_keys import KeyDirectory
from config.settings import Settings
from services.accounts import tokens
from services.accounts.tokens import VerificationKey


class LocalAuthority:
    """Keys out of the directory, revocations out of the rows; implements
    `services.accounts.tokens.Authority`."""

    def __init__(self, settings: Settings) -> None:
        self._keys = KeyDirectory(settings.signing_keys_dir)

    def find(self, kid: str) -> VerificationKey | None:
        """The public key of this id, or None."""
        return self._keys.find(kid)

    def is_revoked(self, jti: str) -> bool:
        """True if this service token was revoked, or never minted here."""
        return not tokens.is_standing(jti)
