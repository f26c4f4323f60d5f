"""Runs of Python programs that do not wait for their imports, which take longer
than most of what the tests of engines run: a process that has imported MODULEs,
and has neither other threads nor anything of an engine, forks one for each run.

    forked.py serve SOCKET MODULE...            until it is killed
    forked.py run SOCKET PROGRAM ARGUMENT...    as python3 PROGRAM ARGUMENT...,
                                                with the environment of the first;
                                                SIGTERM is handed on to it
"""

import os
import select
import signal
import socket
import struct
import sys

MESSAGE_MAX = 1 << 16
NOT_RUN = 125
END_S = 20


def serve(path, *modules):
    import importlib
    import threading

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    for module in modules:
        importlib.import_module(module)
    assert threading.active_count() == 1
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path + ".new")
    listener.listen(16)
    os.rename(path + ".new", path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return attend(connection)
        connection.close()


def attend(connection):
    """Starts the run, ends it when its asker has no more to say or is gone, and
    says how it ended."""
    text, outputs, _, _ = socket.recv_fds(connection, MESSAGE_MAX, 2)
    pid = os.fork()
    if pid == 0:
        connection.close()
        return become(text.decode().split("\0"), outputs)
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([ended, connection], [], [])
    if ended not in ready:
        signal.pidfd_send_signal(ended, signal.SIGTERM)
        if not select.select([ended], [], [], END_S)[0]:
            signal.pidfd_send_signal(ended, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        connection.send(struct.pack("i", status))
    finally:
        os._exit(0)


def become(argv, outputs):
    import runpy

    for to, fd in enumerate(outputs, 1):
        os.dup2(fd, to)
        os.close(fd)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


def run(path, *argv):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    socket.send_fds(s, ["\0".join(argv).encode()], [1, 2])
    signal.signal(signal.SIGTERM, lambda *_: s.shutdown(socket.SHUT_WR))
    answer = s.recv(4)
    status = struct.unpack("i", answer)[0] if len(answer) == 4 else NOT_RUN
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    {"serve": serve, "run": run}[sys.argv[1]](*sys.argv[2:])
