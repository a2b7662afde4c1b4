"""A whole running service on one host: private servers, every process of the Procfile, development
users.

`make up` runs one under var/, the tests and the bench run theirs beside it; all use this class and
the same Procfile. Order at start: servers, database, signing keys, migrations, processes, users.
Order at the end: sandboxes put to sleep (or removed, in a private stack), processes, network,
servers.
"""
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from app.identity.signing_keys import KeyDirectory
from bin.console import Advice, say, step
from bin.stack import dev_env, health, host_shares, leftovers, servers, unix_accounts
from bin.stack.guest_image import build_command
from bin.stack.localhost_certificate import ensure_certificate
from bin.stack.run_command import run_command
from bin.stack.site import ROOT, Site
from bin.stack.supervision import merge_pages, supervise
from config.settings import Settings, load
from nodeworker.hypervisor.qemu.images.image_holders import unregister
from services.llm.configured.config_file import load_config

SERVERS = ("postgres", "redis", "s3")


class Stack:
    """One stack. `durable=False` leaves out fsync (tests); `processes` limits which of the
    Procfile's are run."""

    def __init__(self, site: Site, *, durable: bool = True,
                 processes: Iterable[str] | None = None) -> None:
        self.site = site
        self.durable = durable
        known = supervise.procfile()
        self.processes = tuple(known if processes is None else processes)
        self.supervisor = supervise.Supervisor(site, {**servers.commands(site), **known})

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes, for a command that is to see this stack."""
        return self.site.environ

    @property
    def settings(self) -> Settings:
        return load(self.site.values)

    @property
    def api_url(self) -> str:
        return self.site.values["SVC_API_URL"]

    @property
    def auth_url(self) -> str:
        return self.site.values["SVC_AUTH_URL"]

    @property
    def edge_urls(self) -> dict[str, str]:
        """Addresses of the edge by what is there: `api`, `identity`."""
        port = self.settings.edge_port
        hosts = {"api": "localhost", "identity": "auth.localhost"}
        return {name: f"https://{host}:{port}" for name, host in hosts.items()}

    @property
    def people(self) -> dict[str, str]:
        """What clients need to know: URLs, users, keys; empty before `seed`."""
        return dev_env.read(self.site)

    # -- making it run

    def up(self) -> None:
        """Bring everything up and return when it is healthy; nothing that runs already is
        touched."""
        self.start_servers()
        self.prepare()
        self.start(*self.processes)
        self.wait_healthy()
        self.seed()

    def start_servers(self) -> None:
        """Postgres, Redis and the S3 server, answering, with the database made."""
        if not self.supervisor.running():
            self.supervisor.shutdown()  # an end that has begun takes its time
            leftovers.end(self._processes)
        unix_accounts.prepare(self.site)
        servers.prepare(self.site, durable=self.durable)
        self.supervisor.launch()
        for name, setting in zip(SERVERS, ("SVC_DATABASE_URL", "SVC_REDIS_URL", "SVC_S3_URL"),
                                 strict=True):
            if not self.supervisor.pid(name):
                servers.check_port(self.site, name, setting)
        self.start(*SERVERS)

    def ensure_images(self, *, show: bool = False) -> None:
        """The guest image and the warm image of the smallest size; both are found again if they
        exist.

        The node bakes all others, those of SVC_BAKE_SIZES first, in the background.
        """
        # The build fetches with apt, npm and pip, which the operator's environment may configure.
        self.run(build_command(self.settings), timeout_s=3600, show=show,
                 env={**os.environ, **self.env})
        self.run("python -m nodeworker.commands.bake small", timeout_s=1800, show=show)

    def prepare(self) -> None:
        """Compiled code, keys, the edge's certificate and migrations; all leave alone what is
        there. Raises SettingsError for a file of settings with which a process would not start, and
        Advice for code that it cannot read."""
        unix_accounts.check_code()
        if self.settings.llm_config:
            load_config(self.settings.llm_config)
        self.run(f"python -m compileall -q {' '.join(unix_accounts.CODE)}")
        KeyDirectory(self.settings.signing_keys_dir).ensure(self.settings.jwt_algorithms[0])
        ensure_certificate(self.site)
        self.run(supervise.release_command())

    def seed(self) -> None:
        """Make the development users and write dev.env, keeping what works of it; skipped while all
        of it does."""
        if dev_env.is_current(self.site):
            return
        known_people = shlex.quote(str(self.site.data_dir / "dev.env"))
        answer = self.run(f"python -m app.operator seed-dev --existing {known_people}").splitlines()
        dev_env.write(self.site, dict(line.split("=", 1) for line in answer
                                      if line.startswith("SVC_")))

    def wait_healthy(self, timeout_s: float = 90) -> None:
        """Return when the HTTP processes answer, every worker answers, this node's heartbeat is
        fresh and no process ends again and again."""
        for what, condition, suspects in health.conditions(self.site, self.processes):
            self._until(what, timeout_s, condition, suspects)
        restless: list[str] = []

        def all_stay() -> bool:
            restless[:] = self.supervisor.list_restless(self.processes)
            return not restless

        self._until("every process runs and stays", timeout_s, all_stay, restless)

    def run(self, command: str, timeout_s: float = 900, *, show: bool = False,
            env: Mapping[str, str] | None = None) -> str:
        """What a shell line prints in the environment of this stack, or in `env`; raises Advice as
        `run_command` does."""
        return run_command(command, env or self.env, timeout_s, show=show)

    # -- single processes

    def start(self, *names: str) -> None:
        """Start processes by their Procfile (or server) names; servers answer afterwards."""
        self.supervisor.start(*names)
        if "postgres" in names:
            self._until("Postgres takes connections", 60,
                        lambda: health.database_made(self.site), SERVERS)
        if {"redis", "s3"} & set(names):
            self._until("Redis and S3 listen", 30, lambda: health.servers_listen(self.site),
                        SERVERS)

    def stop(self, *names: str) -> None:
        """Stop processes for good, politely."""
        self.supervisor.stop(*names)

    def kill(self, name: str, signum: int = signal.SIGKILL) -> int:
        """Signal one process as a crash would; the supervisor starts it again. Returns its pid."""
        return self.supervisor.kill(name, signum)

    def crash(self, *names: str) -> None:
        """kill -9 each process and keep it down until `start`: its children are left as a real
        crash leaves them."""
        self.supervisor.crash(*names)

    def restart(self, *names: str) -> None:
        """Stop and start again."""
        self.supervisor.stop(*names)
        self.start(*names)

    def logs(self, name: str, lines: int = 60) -> str:
        """The last lines of a process's log."""
        return self.supervisor.tail(name, lines)

    # -- ending it

    def down(self, *, force: bool = False) -> None:
        """Hibernate the sandboxes, stop everything, take our network off the host. Nothing a user
        made is lost: where a sandbox stays awake nothing is stopped, and Advice raised. With
        `force` its machine is ended as by a power failure."""
        if (why := self._hibernate()) and (awake := leftovers.list_awake(self.node_dir)):
            told = f"{len(awake)} sandboxes are awake and cannot be put to sleep: {why}"
            if not force:
                raise Advice(f"{told}\nNothing was stopped. Put that right, or `make down FORCE=1`"
                             " ends them: their memory is lost, their disks stay.")
            say(f"warning: {told}")
        if self.supervisor.running():
            with step("Stopping the processes"):
                self.stop(*reversed(self.processes))
        leftovers.end(self._vms)
        leftovers.end(self._bakes)
        try:
            self.run("python -m nodeworker.commands.teardown")
        except Advice as advice:
            say(f"warning: the network of the sandboxes was not removed: {advice}")
        self.supervisor.shutdown()
        leftovers.end(self._processes)
        merge_pages.Merging().end_abandoned()

    def _hibernate(self) -> str:
        """Put every running sandbox to sleep; returns why that failed, if it did."""
        if not self.supervisor.running():
            return "nothing of the stack runs that could do it; `make up` starts it."
        if idle := [name for name in (*SERVERS[:2], "node-ops") if not self.supervisor.pid(name)]:
            return f"{', '.join(idle)} does not run; `make status` and `make logs` say more."
        try:
            with step("Hibernating running sandboxes"):
                # A `git pull` may have come before: the drain is today's code.
                self.run(supervise.release_command())
                self.run("python -m nodeworker.commands.drain")
        except Advice as advice:
            return str(advice)
        return ""

    def destroy(self, keep: Collection[str] = ()) -> None:
        """End every process and VM of this stack and remove its directory; works on a half-made or
        killed one too. Entries named in `keep` stay, and so do private stacks inside it: they have
        their own owners."""
        leftovers.end(self._processes, patience_s=0)
        leftovers.end(self._vms, patience_s=0)
        # Without a claim, what has the names of its share may be another stack's by now.
        if share := host_shares.share_of(self.site.data_dir):
            leftovers.end(self._bakes, patience_s=0)
            with contextlib.suppress(Advice):
                self.run("python -m nodeworker.commands.teardown",
                         env={**self.env, "SVC_NET_PREFIX": share.net_prefix})
            leftovers.remove_cgroups(share.net_prefix)
        merge_pages.Merging().end_abandoned()
        host_shares.release_share(self.site.data_dir)
        if {"SVC_IMAGE_DIR", "SVC_NODE_DIR"} <= self.site.values.keys():  # pruning needs it there
            unregister(Path(self.site.values["SVC_IMAGE_DIR"]),
                       Path(self.site.values["SVC_NODE_DIR"]))
        leftovers.remove_entries(self.site.data_dir, keep)

    def _processes(self) -> dict[int, str]:
        return leftovers.processes_of(self.site.data_dir)

    def _bakes(self) -> dict[int, str]:
        return leftovers.bakes_of(self.site.values.get("SVC_NET_PREFIX", ""))

    @property
    def node_dir(self) -> Path:
        """Where its node keeps its files."""
        return ROOT / self.site.values.get("SVC_NODE_DIR", self.site.data_dir / "node")

    def _vms(self) -> dict[int, str]:
        return leftovers.vms_of(self.node_dir)

    # -- waiting

    def _until(self, what: str, timeout_s: float, condition: Callable[[], bool],
               suspects: Iterable[str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                evidence = "\n".join(
                    f"--- {name} ({self.supervisor.state(name)})\n{self.logs(name, 25)}"
                    for name in suspects)
                raise Advice(f"waited {timeout_s:.0f} s in vain until {what}. Logs are under "
                             f"{self.site.data_dir}/log:\n{evidence}")
            time.sleep(0.1)


def private_stack(name: str, settings: Mapping[str, str] | None = None, *, durable: bool = False,
                  processes: Iterable[str] | None = None) -> Stack:
    """A stack of its own under var/, beside any other; end it with `destroy`.

    `name` begins with `test-` or `bench-`: what a killed run left under such a name is removed by
    `remove_abandoned`.
    """
    data_dir = ROOT / "var" / f"{name}-{os.getpid()}"
    leftovers.make_directory(data_dir)
    try:
        return Stack(Site.private(data_dir, settings or {}), durable=durable, processes=processes)
    except Advice:
        leftovers.remove_entries(data_dir)
        raise


def remove_abandoned() -> list[str]:
    """End and remove private stacks whose owner was killed; returns their names."""
    found = leftovers.abandoned(ROOT / "var")
    for data_dir in found:
        Stack(Site.existing(data_dir)).destroy()
    return [data_dir.name for data_dir in found]
