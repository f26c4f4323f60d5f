"""load.py [DIR]: until /root/stop is there, puts objects into the pool, reads those
named 1 to 6, and compares them with /root/object; at the end it reads all that it has
put. By the library (KVPOOL_MASTER, KVPOOL_LISTEN, KVPOOL_TLS_DIR), or as files in DIR.
Any error ends it. /root/load has the number of rounds so far."""

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIZE = 16384
NAME = f"{socket.gethostname()}-{'files' if sys.argv[1:] else 'library'}"


def by_files(where: Path) -> tuple[Callable[[str, bytes], None], Callable[[str], bytes]]:
    directory = os.open(where, os.O_RDONLY)

    def put(name: str, content: bytes) -> None:
        temporary = where / f"{name}.tmp"
        temporary.write_bytes(content)
        temporary.rename(where / name)
        os.fsync(directory)

    return put, lambda name: (where / name).read_bytes()


def by_library() -> tuple[Callable[[str, bytes], None], Callable[[str], bytes]]:
    import kvpool  # (which machines with files alone do not have)

    pool = kvpool.Pool(os.environ["KVPOOL_MASTER"], listen=os.environ["KVPOOL_LISTEN"])
    objects = pool.namespace("two")
    buffer = bytearray(4 << 20)
    memory = pool.register(buffer)

    def put(name: str, content: bytes) -> None:
        buffer[: len(content)] = content
        objects.put_from(name, memory[: len(content)], sync=True)

    def get(name: str) -> bytes:
        return bytes(buffer[: objects.get_into(name, memory)])

    return put, get


def content(i: int) -> bytes:
    return f"{NAME} {i} ".encode().ljust(SIZE, b"%d" % (i % 10))


def main() -> None:
    put, get = by_files(Path(sys.argv[1])) if sys.argv[1:] else by_library()
    expected = Path("/root/object").read_bytes()
    rounds = 0
    while not Path("/root/stop").exists():
        put(f"{NAME}-{rounds}", content(rounds))
        which = str(rounds % 6 + 1)
        assert get(which) == expected, which
        rounds += 1
        Path("/root/load.new").write_text(str(rounds))
        os.rename("/root/load.new", "/root/load")
        time.sleep(0.05)
    for i in range(rounds):
        assert get(f"{NAME}-{i}") == content(i), i
    print(f"{NAME}: {rounds} objects put, all there")


main()
