"""What makes one guest differ from every other clone of the same memory: machine-id, host name, SSH
host key, token."""
import secrets
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Identity:
    """A fresh identity; the host key is an OpenSSH ed25519 pair made on the host, where randomness
    is not cloned."""

    machine_id: str
    hostname: str
    host_key_private: str = field(repr=False)
    host_key_public: str


def new_identity(sandbox_id: str) -> Identity:
    """A new identity for the guest of `sandbox_id`."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH,
                                serialization.NoEncryption())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH,
                                           serialization.PublicFormat.OpenSSH)
    return Identity(secrets.token_hex(16), sandbox_id, private.decode(),
                    f"{public.decode()} root@{sandbox_id}\n")
