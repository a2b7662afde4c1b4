"""What runs in a builder: the script of a build, and the look at what it has made.

1. The build runs under limits (`build_limits.py`). 2. Its log keeps its beginning; the end of a
longer one is in a file of its own. 3. What a build leaves running is killed. It may get out of all
this, being root: then the run's deadline ends it.
"""
from config import guest_gateway
from nodeworker.deploys.build_limits import KILL, LIMITED
from services.deploys.logs import LOG_BYTES_MOST

# In memory: what a build fills the disk with does not keep it from saying so.
WORK = "/run/svc-build"
LAST_BYTES = 16 * 1024
REGISTRY = f"{guest_gateway.URL}/npm"
# Files of a project that are looked at, for databases; the packages it installs are not.
LOOKED_AT_MOST = 50_000
# Of them so many are told: the one that is live, if it is there, and the first ones by name. Which
# these are depends on no order of a disk.
_DATABASES_MOST = 10

# Bun takes its own lock, and the addresses that are in it; where it has none, it goes by npm's.
_INSTALL = r"""
if [ -e package.json ]; then
  if [ -z "${BUN_CONFIG_REGISTRY:-}" ]; then
    if curl -fs -m 10 -o /dev/null "$registry/-/ping"; then
      export BUN_CONFIG_REGISTRY="$registry/"
    else
      echo "[there is no registry cache here: packages come from the public internet]"
    fi
  fi
  set --
  for lock in bun.lock bun.lockb package-lock.json yarn.lock; do [ -e "$lock" ] && break; done
  case $lock in bun.lock*) set -- --frozen-lockfile;; esac
  hosts=$(grep -aoE '("resolved": ?"|resolved "|@[^"]+", ")https?://[^/"]+' "$lock" 2>/dev/null |
          grep -oE 'https?://.*' | grep -vF "${registry%/npm}" | sort -u | head -n 3)
  if [ -n "$hosts" ]; then
    echo "[$lock names packages at" $hosts "- they come from there and not from the registry" \
         "cache, which fails where builders have no way out; a bun.lock names no hosts]"
  fi
  echo "$ bun install $*"
  bun install "$@" || exit $?
fi
"""
# Arguments: the line of the build or nothing, the registry's address.
INNER = r"""
line=$1 registry=$2
(
""" + _INSTALL + r"""
if [ -n "$line" ]; then
  echo "$ $line"
  eval "$line"
fi
)
code=$?
if grep -qs '^oom_kill [1-9]' "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.events"; then
  echo "[the builder ran out of memory]"
fi
exit $code
"""
# Arguments: the directory of the build, the script above, its line, the registry's address.
BUILD = rf"""
work=$1 inner=$2
shift 2
echo $$ >"$work/session"
mkdir -p "$work/bin" && ln -sf "$(command -v bun)" "$work/bin/node"
mkfifo "$work/said"
(
  stdbuf -o0 head -c {LOG_BYTES_MOST + 1} >"$work/log"
  tail -c {LAST_BYTES} >"$work/last"
) <"$work/said" &
(
  export PATH="$work/bin:$PATH" CI=1 NODE_ENV=production HOME=/root
  exec {LIMITED} /bin/sh -c "$inner" build "$@"
) >"$work/said" 2>&1 </dev/null
code=$?
{KILL} 2>/dev/null
wait
echo $code >"$work/exit.new" && mv "$work/exit.new" "$work/exit"
"""
LOOK = f"""
import itertools, json, os, sys
candidates, live, left = json.loads(sys.argv[1]), sys.argv[2], {LOOKED_AT_MOST}
databases, functions, folders = [], 0, ["."]
while folders and left >= 0:
    folder = folders.pop()
    try:
        entries = list(itertools.islice(os.scandir(folder), left + 1))
    except OSError:
        continue
    for entry in entries:
        left -= 1
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in ("node_modules", ".git"):
                folders.append(entry.path)
        elif entry.is_file(follow_symlinks=False):
            functions += entry.path.startswith("./functions/")
            try:
                with open(entry.path, "rb", buffering=0) as file:
                    if file.read(16) == b"SQLite format 3\\0":
                        databases.append(entry.path[2:])
                        databases.sort(key=lambda name: (name != live, name))
                        del databases[{_DATABASES_MOST}:]
            except OSError:
                pass
found = [c for c in candidates if os.path.isfile(os.path.join(c, "index.html"))]
print(json.dumps({{"directories": found, "databases": databases, "functions": functions,
                  "tooMany": left < 0}}))
"""
