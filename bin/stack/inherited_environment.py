"""What processes of a stack inherit of the environment of whoever starts it: only the variables
that are named here, and those that root's processes alone may see go to no other."""
import os

# What every process may inherit from the operator's shell. AWS_* stays out: boto3 would read it.
_BY_ALL = ("LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
           "CURL_CA_BUNDLE")
# And what besides commands and node workers may; the address of a proxy may hold a password.
_BY_ROOT = ("HOME", "TERM", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy",
            "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_REGISTRY", "npm_config_registry", "CI")


def inherited_by_all() -> dict[str, str]:
    """What every process inherits."""
    return _found(_BY_ALL)


def inherited_by_root() -> dict[str, str]:
    """What commands and processes that run as root inherit."""
    return _found(_BY_ALL + _BY_ROOT)


def _found(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
