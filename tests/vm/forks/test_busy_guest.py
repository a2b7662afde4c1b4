"""A guest that writes to its memory and its disk all the time is captured as it is in one instant:
no page of a fork is torn, or older than another."""
import pytest

CYCLES = 8
PAGES = 1500
# Writes the number of its round over all of its pages, in an order of its own in each round, and
# first looks whether the whole page still has the number of the round before. A fork goes on in the
# middle of a round; a page that was copied at another instant is found within the next one. Every
# round appends to a file, of which it knows the digest; when asked it reads that from the disk.
WRITER = """
import hashlib, mmap, os, random, signal, struct, sys
pages, number = int(sys.argv[1]), 0
memory = mmap.mmap(-1, pages * 4096)
digest, asked = hashlib.sha256(), False
disk = open("/root/rounds", "wb", buffering=0)
def tell(name, text):
    with open("/dev/shm/" + name + ".new", "w") as file:
        file.write(text)
    os.rename("/dev/shm/" + name + ".new", "/dev/shm/" + name)
def ask(*_):
    global asked
    asked = True
def page_of(number):
    return struct.pack("Q", number) * 512
signal.signal(signal.SIGUSR1, ask)
tell("pid", str(os.getpid()))
while True:
    order = list(range(pages))
    random.Random(number).shuffle(order)
    before, after = page_of(number), page_of(number + 1)
    for place in order:
        if memory[place * 4096:place * 4096 + 4096] != before:
            tell("broken", "page %d in round %d" % (place, number))
        memory[place * 4096:place * 4096 + 4096] = after
    number += 1
    block = random.Random(number).randbytes(20000)
    digest.update(block)
    disk.write(block)
    if number % 3 == 0:
        os.fsync(disk.fileno())
    if asked:
        asked = False
        os.fsync(disk.fileno())
        open("/proc/sys/vm/drop_caches", "w").write("3")
        found = hashlib.sha256(open("/root/rounds", "rb").read()).hexdigest()
        if found != digest.hexdigest():
            tell("broken", "the file in round %d" % number)
        tell("told", str(number))
"""
ASK = ("rm -f /dev/shm/told; kill -USR1 $(cat /dev/shm/pid); "
       "until test -e /dev/shm/told; do sleep 0.05; done; "
       "cat /dev/shm/told; test ! -e /dev/shm/broken || cat /dev/shm/broken")


@pytest.fixture
def busy(real):
    """A sandbox whose guest writes all the time."""
    spec = real.create()
    agent = real.agent(spec)
    agent.write_file("/root/writer.py", WRITER.encode())
    agent.exec(shell=f"python3 /root/writer.py {PAGES}", detached=True)
    real.shell(spec, "until test -e /dev/shm/pid; do sleep 0.05; done")
    return spec


def check_unbroken(lab, spec):
    """The writer has found nothing wrong, and is in a later round than before."""
    earlier, later = (lab.shell(spec, ASK) for _ in range(2))
    assert int(earlier) < int(later)


@pytest.mark.parametrize("transient", [True, False], ids=["lent", "copied"])
def test_every_page_of_a_fork_is_of_the_instant_of_its_capture(real, busy, transient):
    for number in range(CYCLES if transient else CYCLES // 3):
        carrier = f"carrier{number}"
        real.driver.snapshot(busy.sandbox_id, carrier, transient=transient)
        fork = real.create(carrier)
        check_unbroken(real, fork)
        real.driver.destroy(fork.sandbox_id)
        real.driver.delete_snapshot(carrier)
    check_unbroken(real, busy)
