"""Renders the configuration of the edge from its template, `nginx.conf` beside this file.

What the template is told is in `render`; the files it includes are told the same.
"""
import ipaddress
import re
import socket
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import jinja2

from config import owned_files, static_file_ages
from config.bind import bind_of, reached_at
from config.media_types import DEFAULT, MEDIA_TYPES
from config.nginx.certificates import find_certificates
from config.settings import Settings, SettingsError

HERE = Path(__file__).resolve().parent
DIRECTORY = "edge"
# Of the process `releases`.
RELEASES = "releases"
# In the order in which nginx wants them.
_LUA_MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")


@dataclass(frozen=True)
class Nginx:
    """The nginx of this host: its version, and the modules of Lua, if it has them."""

    version: tuple[int, ...]
    lua_modules: tuple[Path, ...]

    @property
    def command(self) -> list[str]:
        """The beginning of its command line; an old one opens its packaged log first, which it may
        not, and goes on."""
        return ["nginx", "-e", "stderr"] if self.version >= (1, 19, 5) else ["nginx"]

    @property
    def has_http2_directive(self) -> bool:
        """An old one is told HTTP/2 beside its addresses, for which a new one writes warnings."""
        return self.version >= (1, 25, 1)


@lru_cache(maxsize=1)
def find_nginx() -> Nginx:
    """Ask the installed nginx; raises OSError if there is none, SettingsError for one that cannot
    be the edge."""
    shown = subprocess.run(["nginx", "-V"], text=True, capture_output=True, check=True).stderr
    if "--without-http_limit_conn_module" in shown:
        raise SettingsError("This nginx was built without limit_conn, as nginx-light of Ubuntu"
                            " 22.04 is. Install nginx-core in its place.")
    version = re.search(r"nginx/([0-9.]+)", shown)
    directory = re.search(r"--modules-path=(\S+)", shown)
    found = [Path(directory[1], name) for name in _LUA_MODULES] if directory else []
    return Nginx(tuple(map(int, version[1].split("."))) if version else (),
                 tuple(found) if all(path.exists() for path in found) else ())


def directory_of(settings: Settings) -> Path:
    """The one directory that the edge writes."""
    return settings.data_dir / DIRECTORY


def certificate_of(settings: Settings) -> tuple[Path, Path]:
    """Files of the certificate and its key: those of the settings, else those that this machine's
    authority made."""
    if settings.tls_cert:
        return Path(settings.tls_cert), Path(settings.tls_key)
    return directory_of(settings) / "tls.pem", directory_of(settings) / "tls.key"


def certificates_directory_of(settings: Settings) -> Path:
    """Where the certificates are for names of apps besides their slugs."""
    return (Path(settings.certificates_dir) if settings.certificates_dir
            else directory_of(settings) / "certificates")


def render(settings: Settings, nginx: Nginx, open_files: int) -> str:
    """The whole configuration, as text, for workers that may have that many files open."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True)
    certificate, key = certificate_of(settings)
    text = environment.get_template("nginx.conf").render(
        worker_connections=min(open_files, 32768), directory=directory_of(settings),
        certificate=certificate, certificate_key=key, port=settings.edge_port,
        addresses=_usable(settings.edge_addresses), proxies=settings.edge_proxies,
        requests_per_address=settings.edge_requests_per_address,
        modules=nginx.lua_modules, lua_directory=HERE / "lua",
        http2_directive=nginx.has_http2_directive,
        api=reached_at(bind_of(settings.api_bind, settings.api_url)),
        identity=reached_at(bind_of(settings.auth_bind, settings.auth_url)),
        gateway_port=settings.gateway_port, shell_port=settings.shell_port,
        guest_gateway_port=settings.guest_gateway_port,
        api_names=_names("localhost api.localhost", settings.api_url),
        identity_names=_names("auth.localhost", settings.auth_url),
        shell_names=_names("shell.localhost", settings.shell_url),
        preview_domain=settings.preview_domain,
        preview_domain_pattern=re.escape(settings.preview_domain),
        preview_rewrite_host=settings.preview_rewrite_host,
        app_certificates=find_certificates(
            certificates_directory_of(settings), (settings.apps_domain, settings.preview_domain)),
        apps_domain=settings.apps_domain, apps_domain_pattern=re.escape(settings.apps_domain),
        releases=settings.data_dir / RELEASES,
        page_age=static_file_ages.PAGE, assets_age=static_file_ages.ASSET,
        media_types=MEDIA_TYPES, default_media_type=DEFAULT,
        upload_max_bytes=settings.upload_max_bytes, edge_secret=settings.edge_secret,
        head_s=f"{settings.head_s * 1000:.0f}ms",
        # Longer than what the process behind gives a body, so that it is the one that answers.
        body_s=f"{settings.body_silence_s * 2000:.0f}ms",
    )
    return re.sub(r"\n(?:[ \t]*\n)+", "\n\n", text)


def write(path: Path, text: str) -> None:
    """Write a file that only the edge (and root) reads, whole or not at all: it has a secret."""
    owned_files.write(path, text.encode())


def _names(always: str, url: str) -> str:
    """Names of a server: those of development, and the host of its public URL."""
    host = urlsplit(url).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return always if host in always.split() else f"{always} {host}"
    return always


def _usable(addresses: tuple[str, ...]) -> list[str]:
    """Without those of IPv6 on a host that has none."""
    return [each for each in addresses if not each.startswith("[") or _has_ipv6()]


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
