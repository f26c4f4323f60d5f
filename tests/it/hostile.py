#!/usr/bin/env python3
"""Peers that misbehave, and the client whose operations they must not disturb,
for it_hostile.sh and it_namespaces.sh:

    hostile.py [--tls DIR] [--from ADDRESS] WHAT ARGUMENT...

With --tls the certificate of DIR is shown, and any is accepted; --from is the
address that it dials from. Ends at once, or, if marked *, says "on" when all is in
place, goes on until SIGTERM, and says what came of it: NAME VALUE, a line each.

    client A B SECONDS [alone]  puts by mount A, fsyncs, stats and gets by mount B: JSON
                          of operations, failures, 99th percentile. Alone: all by A,
                          without fsync, which waits for each mount
    burn *                takes the time of an attacker, and attacks nobody
    knock TARGET...       is it let in? "in", or "refused WHY" (for each)
    oversized TARGET      lengths beyond each bound: "oversized REFUSED OF"
    replay TARGET         bytes of one connection again, on another; JOIN twice
    posing MASTER PEER NAME HOST *  of HOST, takes the "id" of node NAME from the picture
                          and says it to PEER: on a connection, with a GET behind it, and
                          on eight lanes, "requests", "lanes": in or refused; then how
                          many bytes the lanes "got", and were "closed" for NAME's own
    claim MASTER ID HOST  joins with that id, as of HOST: as knock
    links PEER            asks for a lane without TLS, and says there, as anybody on the
                          path could, what belongs to RDMA: LINK and BUFFER, each
                          "closed" or "kept"
    seen MASTER           subscribes as a mount, and says each path of the picture
    tries MASTER PATH...  requests each kind of change of each PATH, of which it
                          says "KIND PATH ERRNO"; 0: done. In this order: a
                          directory is made, changed and removed, a file published
                          and unlinked
    half N TARGET... *    N connections to each, with a half of a ClientHello or JOIN
    slow N HOW TARGET... *  N connections to each, a byte at a time: HOW is shake (of
                          the handshake, without TLS: of the header) or frame
    grow MASTER *         changes that make the feed grow, as an honest node may
    deaf MASTER HOW *     subscribes, has the feed grow, and never reads: HOW is
                          silent, or acks (of what it has not read)
    joins MASTER *        joins as 500 nodes, and more that leave at once
    ops MASTER *          requests in a row, without a pause, that change nothing
    names MASTER SIZE [N] *  publishes files and unlinks them, SIZE changes a message, N
                          messages in flight: as many as a node has, 4
    dirs MASTER SIZE [N] *  the same with directories, which are in the master's state
    large_dirs MASTER SIZE [N] *  the same, with the longest names, and attributes
    one_dir MASTER SIZE [N] *  makes and removes one directory
    user MOUNT *          the same as large_dirs, by a mount
    gone MASTER *         an inventory without an end, of what it has evicted
    gets PEER N *         N connections with GETs in a row, none reads
    liar MASTER HOW *     a store: publishes liar.HOW and sends for it: short, long,
                          sum (each also as HOW.lane: of a large one, by its lane),
                          slow, silent, or says ENOENT (holders); with figures
                          it says of itself what cannot be; plain: it says that
                          TLS ends on a lane, which was not asked for; buffer: asked
                          for a lane without TLS, it says there, as anybody on the
                          path could, what belongs to RDMA, and whether it was "closed"
                          or "kept"
    master ADDRESS *      listens there, and is no master: sends an empty picture to
                          who connects; says whether it was sent anything
"""
import errno
import itertools
import json
import os
import select
import signal
import socket
import ssl
import struct
import sys
import threading
import time

MAGIC = 0x3150564B
JOIN, WELCOME, INVENTORY, SUBSCRIBE, FEED, FEED_ACK, OPS, OPS_DONE = 1, 2, 3, 4, 5, 6, 7, 8
HEARTBEAT, ERROR, HELLO, GET, DATA, LINK, BUFFER = 15, 16, 32, 33, 34, 39, 40
VERSION = 2
STEP_S = 0.1  # between the bytes of who is slow
SLOWEST_S = 0.5  # the same of a first frame, some 80 bytes

tls_dir = ""
from_address = ""


class Over:
    """Set by a signal. A threading.Event has a lock that the interrupted thread may hold."""

    def __init__(self):
        self.flag = False
        self.end, self.other = os.pipe()

    def set(self):
        self.flag = True
        os.write(self.other, b"x")

    def is_set(self):
        return self.flag

    def wait(self, seconds=None):
        return bool(select.select([self.end], [], [], seconds)[0])


over = Over()


def say(*what):
    print(*what, flush=True)


# ---- messages ----


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def packed(*fields):
    """Pairs of number and value; ints are varints, ("f", N) is a fixed64."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        elif isinstance(value, tuple):
            out += varint(number << 3 | 1) + struct.pack("<Q", value[1])
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def frame(kind, payload=b"", req=0, bulk=0, length=None):
    size = len(payload) if length is None else length
    return struct.pack("<IHHIIQQ", MAGIC, VERSION, kind, size, 0, req, bulk) + payload


def node_id(n=0):
    return b"hostile" + struct.pack("<IIB", os.getpid(), n, 0)


def node(n=0, at=b"127.0.0.1:1", mount=False, capacity=0, used=0, by=None):
    with open("/proc/sys/kernel/random/boot_id", "rb") as f:
        host = f.read().strip() + b"?"  # no host of this pool's
    return packed((2, by or node_id(n)), (3, b"hostile"), (4, at), (6, host),
                  (7, int(capacity > 0)), (8, int(mount)), (9, 1), (10, capacity), (11, used), (12, used))


def join(n=0, **of_node):
    return frame(JOIN, packed((1, VERSION), (2, node(n, **of_node))))


def lane_of(payload):
    """Of a node's HELLO: what follows the version and the id."""
    rest = payload[4 + payload[3]:]
    return rest[1] if rest[:1] == b"\x18" else 0


def hello(n=0, lane=0, plain=0, by=None):
    return frame(HELLO, packed((1, VERSION), (2, by or node_id(n)), (3, lane), (4, plain)))


def first(kind):
    return join() if kind == "master" else hello()


# ---- connections ----


def context(server=False):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname = False
    ctx.verify_mode = ssl.CERT_NONE
    if os.path.exists(f"{tls_dir}/tls.crt"):
        ctx.load_cert_chain(f"{tls_dir}/tls.crt", f"{tls_dir}/tls.key")
    return ctx


def address(at):
    host, port = at.rsplit(":", 1)
    return host, int(port)


def plain(at, timeout=10.0):
    s = socket.socket()
    s.settimeout(timeout)
    if from_address:
        s.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
        s.bind((from_address, 0))
    s.connect(address(at))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def dial(at):
    s = plain(at)
    return context().wrap_socket(s) if tls_dir else s


def receive(s, n):
    out = b""
    while len(out) < n:
        got = s.recv(min(n - len(out), 1 << 20))
        if not got:
            raise EOFError("closed")
        out += got
    return out


def answer(s):
    """The next frame: kind, req, payload; bulk is read and left."""
    _, _, kind, size, _, req, bulk = struct.unpack("<IHHIIQQ", receive(s, 32))
    payload = receive(s, size)
    receive(s, bulk)
    return kind, req, payload


def has_more(s, wait):
    return (tls_dir and s.pending()) or select.select([s], [], [], wait)[0]


def text_of(payload):
    i = payload.find(b"\x12")
    return payload[i + 2:].decode(errors="replace") if i >= 0 else "?"


def welcomed(to, n=0, **of_node):
    """A session with the master, which awaits the inventory; and its epoch."""
    s = dial(to)
    s.sendall(join(n, **of_node))
    kind, _, payload = answer(s)
    if kind != WELCOME:
        raise EOFError(text_of(payload))
    return s, struct.unpack_from("<Q", payload, payload.index(b"\x11") + 1)[0]


def joined(to, n=0, **of_node):
    s, epoch = welcomed(to, n, **of_node)
    s.sendall(frame(INVENTORY, packed((2, 1))))
    return s, epoch


def beat(epoch, **of_node):
    return frame(HEARTBEAT, packed((1, ("f", epoch)), (2, node(**of_node))))


def kind_of(target):
    """master=HOST:PORT or peer=HOST:PORT."""
    return target.split("=", 1)


def is_closed(s):
    try:
        s.setblocking(False)
        return s.recv(1 << 16, *([] if tls_dir else [socket.MSG_DONTWAIT])) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def closed_of(conns):
    n = 0
    for s in conns:
        for _ in range(4):  # an ERROR or an alert may come first
            if is_closed(s):
                n += 1
                break
    return n


# ---- the client that is not hostile ----


def client(a, b, seconds, alone=""):
    took, failed = [], []
    if alone:
        b = a
    run, kept, i = time.monotonic_ns(), [], 0
    os.makedirs(f"{a}/quiet", exist_ok=True)
    dir_fd = os.open(f"{a}/quiet", os.O_RDONLY)

    def put(name, data):
        with open(f"{a}/{name}.tmp", "wb") as f:
            f.write(data)
        os.rename(f"{a}/{name}.tmp", f"{a}/{name}")
        if not alone:
            os.fsync(dir_fd)

    def get(name, data):
        with open(f"{b}/{name}", "rb") as f:
            if f.read() != data:
                raise OSError(errno.EBADMSG, "other bytes")

    def timed(what, f, *args):
        before = time.monotonic_ns()
        try:
            f(*args)
        except OSError as e:
            failed.append(f"{what} {args[0]}: {e}")
        took.append((time.monotonic_ns() - before) // 1000)

    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        name, data = f"quiet/{run}.{i}", os.urandom(8000)
        timed("put", put, name, data)
        timed("stat", os.stat, f"{b}/{name}")
        timed("get", get, name, data)
        kept.append(name)
        if len(kept) > 8:
            os.unlink(f"{a}/{kept.pop(0)}")
        i += 1
        time.sleep(0.002)
    for name in kept:
        os.unlink(f"{a}/{name}")
    took = sorted(took)
    say(json.dumps({"ops": len(took), "failed": len(failed), "why": failed[:3],
                    "p99_us": took[len(took) * 99 // 100]}))


def burn():
    say("on")
    while not over.is_set():
        sum(range(10000))


# ---- who is not let in, or says what cannot be ----


def knock(*targets):
    for target in targets:
        kind, at = kind_of(target)
        try:
            s = dial(at)
            s.sendall(first(kind))
            got, _, payload = answer(s)
            say("in" if got in (WELCOME, HELLO) else f"refused {text_of(payload)}")
            s.close()
        except (OSError, EOFError) as e:
            say(f"refused {e}")


def oversized(target):
    """Each has its own connection; whoever accepts it waits for the rest."""
    kind, at = kind_of(target)
    types = range(1, 17) if kind == "master" else (1, 32, 33, 34, 36, 37, 38, 39, 40)
    tried = refused = 0
    for t in types:
        for length, bulk in ((0xFFFFFFFF, 0), ((4 << 20) + 1, 0), (0, 1 << 63)):
            for greet in (False, True):
                s = dial(at)
                try:
                    if greet:
                        s.sendall(first(kind))
                        answer(s)
                    tried += 1
                    s.sendall(frame(t, length=length, bulk=bulk))
                    while answer(s)[0] != ERROR:
                        pass
                    refused += 1
                except socket.timeout:
                    say(f"accepted: type {t}, {length} bytes, {bulk} of bulk")
                    return
                except (OSError, EOFError):
                    refused += 1
                s.close()
    say("oversized", refused, tried)


def replay(target):
    kind, at = kind_of(target)
    if tls_dir:  # what was seen on the wire, once more
        into, out, sent = ssl.MemoryBIO(), ssl.MemoryBIO(), b""
        s, tls = plain(at), context().wrap_bio(into, out)

        def step(f, *args):
            nonlocal sent
            while True:
                try:
                    return f(*args)
                except ssl.SSLWantReadError:
                    pass
                finally:
                    data = out.read()
                    sent += data
                    s.sendall(data)
                into.write(s.recv(65536))

        step(tls.do_handshake)
        step(tls.write, first(kind))
        got = step(tls.read, 32)
        say("first", "in" if got[6] in (WELCOME, HELLO) else "refused")
        again = plain(at, 3)
        again.sendall(sent)
        data = b""
        try:
            while True:
                got = again.recv(65536)
                if not got:
                    break
                data += got
            say("again closed")
        except OSError as e:
            say("again", "open" if isinstance(e, socket.timeout) else "closed")
    s = dial(at)
    s.sendall(first(kind))
    say("once", "in" if answer(s)[0] in (WELCOME, HELLO) else "refused")
    s.sendall(first(kind))
    try:
        while True:
            got, _, payload = answer(s)
            if got == ERROR:
                say("twice refused", text_of(payload))
                return
    except (OSError, EOFError):
        say("twice refused: closed")


# ---- who is slow ----


def client_hello():
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context().wrap_bio(into, out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def until_over(turn=lambda: None, pause=STEP_S):
    say("on")
    while not over.wait(pause):
        turn()


def end_of(bare, data):
    bare.settimeout(3)
    bare.sendall(data)
    try:
        kept = bare.recv(100) != b""
    except socket.timeout:
        kept = True
    except OSError:
        kept = False
    return "kept" if kept else "closed"


def links(at):
    down = packed((1, 4), (2, 1), (4, b"hostile"))
    gone = packed((4, 1))
    for name, kind, payload in ("LINK", LINK, down), ("BUFFER", BUFFER, gone):
        s = dial(at)
        s.sendall(hello(lane=9, plain=1))
        if not answer(s)[2].endswith(b"\x20\x01"):
            raise EOFError("the lane did not end TLS")
        say(name, end_of(socket.socket(fileno=os.dup(s.fileno())), frame(kind, payload)))


class Half:
    """A connection on which no more than this piece is sent."""

    def __init__(self, at, piece):
        self.at, self.piece = at, piece
        self.begin()

    def begin(self):
        self.since, self.socket = time.monotonic(), plain(self.at)
        try:
            self.socket.sendall(self.piece)
        except OSError:
            pass  # it is one too many

    def again(self):
        """If it is over because of its time: however long the others take, all stand."""
        if self.socket and is_over(self.socket):
            timed_out = time.monotonic() - self.since > 1
            self.socket.close()
            self.socket = None
            if timed_out:
                self.begin()


def half(n, *targets):
    halves = []
    for target in targets:
        kind, at = kind_of(target)
        piece = client_hello()[:100] if tls_dir else first(kind)[:40]
        halves += [Half(at, piece) for _ in range(int(n))]
    until_over(lambda: [h.again() for h in halves])
    say("closed", sum(h.socket is None for h in halves))


def is_over(s):
    try:
        s.setblocking(False)
        while s.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
    except OSError:
        return True


def slow(n, how, *targets):
    conns = []  # with what each has to send
    for target in targets:
        kind, at = kind_of(target)
        data = client_hello() if how == "shake" and tls_dir else first(kind)
        for _ in range(int(n)):
            conns.append((plain(at) if how == "shake" else dial(at), data[:-1]))
    sent = 0

    def turn():
        nonlocal sent
        for s, data in conns:
            try:
                s.send(data[sent:sent + 1])
            except OSError:
                pass  # closed: that is what is hoped for
        sent += 1

    until_over(turn, SLOWEST_S)
    say("closed", closed_of([s for s, _ in conns]))


# ---- floods ----


def op(kind, path, *more, change=0):
    meta = packed((1, path), *more)
    return (1, packed((1, kind), (2, meta), (3, change)))


PUBLISH, UNLINK, MKDIR, RMDIR, SETATTR = range(5)


def grown_feed(at, n):
    """Another node's changes: of one directory's attributes, each in the feed."""
    s, epoch = joined(at, n)
    note = [(10, packed((1, b"user.n%d" % i), (2, os.urandom(900)))) for i in range(4)]
    names = [b"grow%d" % i for i in range(256)]

    def change(of):
        s.sendall(frame(OPS, packed(*of), req=1))

    def answered(n):
        while n:
            n -= answer(s)[0] == OPS_DONE

    change([op(MKDIR, name, (6, 0o755)) for name in names])
    answered(1)
    seq = 0

    def turn():
        nonlocal seq
        seq += 1
        for k in range(0, 256, 64):
            change([op(SETATTR, name, (6, 0o700 + seq % 8), *note, change=1 | 16)
                    for name in names[k:k + 64]])
        s.sendall(beat(epoch))
        answered(4)

    return turn


def grow(at):
    until_over(grown_feed(at, 1), 0)


def deaf(at, how):
    s, epoch = joined(at, mount=True)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    s.sendall(frame(SUBSCRIBE))
    more = grown_feed(at, 1)
    say("on")
    while not over.is_set():
        more()
        try:
            s.settimeout(0.2)
            s.sendall(beat(epoch, mount=True))
            if how == "acks":
                s.sendall(frame(FEED_ACK, packed((1, ("f", 1 << 50)))))
        except OSError:
            pass  # cut off


def keep_alive(sessions):
    """A thread's: heartbeats of each (socket, epoch, node), until the end."""
    while not over.wait(0.5):
        for s, epoch, k in list(sessions):
            s.sendall(frame(HEARTBEAT, packed((1, ("f", epoch)), (2, node(k)))))


def joins(at):
    n = 2000
    done = 0
    refused = {}
    stay = []
    threading.Thread(target=keep_alive, args=(stay,), daemon=True).start()
    for k in range(1000, 1500):
        stay.append((*joined(at, k), k))
    say("on")
    while not over.is_set():
        n += 1
        try:
            s = dial(at)
            s.sendall(join(n))
            kind, _, payload = answer(s)
            if kind == WELCOME:
                done += 1
            else:
                why = text_of(payload)
                refused[why] = refused.get(why, 0) + 1
            s.close()
        except (OSError, EOFError) as e:
            refused[str(e)] = refused.get(str(e), 0) + 1
    say("joined", done + len(stay))
    for why, n in refused.items():
        say("refused", n, why)


def pour(conns, data):
    """Sends data over and over on all of conns, until the end."""
    at = {s.fileno(): [s, 0] for s in conns}
    for s in conns:
        s.setblocking(False)
    sent = 0
    say("on")
    while not over.is_set() and at:
        for fd in select.select([], list(at), [], 0.1)[1]:
            s, offset = at[fd]
            try:
                n = s.send(data[offset:offset + 65536])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                time.sleep(0.001)
                continue
            except OSError:
                del at[fd]
                continue
            sent += n
            at[fd][1] = (offset + n) % len(data)
    over.wait()
    say("sent", sent)
    say("ended", len(conns) - len(at), len(conns))


def ops(at):
    """Reads its results, so that it can go on."""
    s, epoch = joined(at)
    change = op(SETATTR, b"no/such", (6, 0o755), change=1)
    batch = memoryview(b"".join(frame(OPS, packed(*256 * [change]), req=k + 1)
                                for k in range(8)) + beat(epoch))
    s.setblocking(False)
    sent = offset = 0
    say("on")
    while not over.is_set():
        try:
            offset += s.send(batch[offset:])
            sent += 2048 * (offset == len(batch))
            offset %= len(batch)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            select.select([s], [s], [], STEP_S)
        except OSError:
            break
        if is_closed(s):  # or is read
            break
    say("ops", sent)


def done_ones(s, wait):
    """How many OPS_DONE have come; waits at most that long for the first."""
    n = 0
    while has_more(s, wait):
        n += answer(s)[0] == OPS_DONE
        wait = 0
    return n


def names(at, size, window=4):
    meta = (4, 1000), (5, b"0123456789abcdef"), (6, 0o644)
    endless(at, size, window, lambda name: op(PUBLISH, name, *meta),
            lambda name: op(UNLINK, name), b"names/%d")


def dirs(at, size, window=4):
    """Each change is a record in etcd, too."""
    endless(at, size, window, lambda name: op(MKDIR, name, (6, 0o755)),
            lambda name: op(RMDIR, name), b"dir%d")


def large_dirs(at, size, window=4):
    """Records of more than 8 KB each."""
    note = [(10, packed((1, b"user.n%d" % i), (2, 900 * b"n"))) for i in range(4)]
    endless(at, size, window, lambda name: op(MKDIR, name, (6, 0o755), *note),
            lambda name: op(RMDIR, name), b"/".join(15 * [250 * b"x"]) + b"/%d")


def one_dir(at, size, window=4):
    """Its last change is never in etcd yet."""
    pair = [op(MKDIR, b"dir", (6, 0o755)), op(RMDIR, b"dir")]
    endless_frames(at, int(size), window,
                   [frame(OPS, packed(*int(size) // 2 * pair), req=1)])


def user(mount):
    """Of a mount, through which such changes come as a node sends them."""
    os.chdir(mount)
    for name in 15 * [240 * "x"]:
        os.makedirs(name, exist_ok=True)
        os.chdir(name)
    say("on")
    made = 0
    while not over.is_set():
        os.mkdir("%d" % (made % 300))
        os.setxattr("%d" % (made % 300), "user.n", (3900 - made % 7) * b"n")
        os.rmdir("%d" % (made % 300))
        made += 1
    say("names", made)


def gone(at):
    """An inventory without an end, of what it has evicted: each a record in etcd."""
    s, epoch = welcomed(at)
    sent = 0
    say("on")
    s.settimeout(STEP_S)
    while not over.is_set():
        names = [packed((1, b"gone/%d" % i), (3, ("f", 1))) for i in range(sent, sent + 256)]
        data = memoryview(frame(INVENTORY, packed(*((3, name) for name in names))) + beat(epoch))
        sent += 256
        while data and not over.is_set():
            try:
                data = data[s.send(data):]
            except socket.timeout:
                pass
            except OSError as e:
                say("ended", repr(e))
                over.wait()
    say("gone", sent)


def endless(at, size, window, made, removed, name):
    """Each change is work for all mounts."""
    size = int(size)
    frames = []
    for first in range(0, 16384 // (1 + len(name) // 256), size):
        some = [name % i for i in range(first, first + size)]
        frames += [frame(OPS, packed(*map(change, some)), req=1)
                   for change in (made, removed)]
    endless_frames(at, size, window, frames)


def endless_frames(at, size, window, frames):
    s, epoch = joined(at)
    window = int(window)
    sent = in_flight = 0
    ended = ""
    say("on")
    try:
        for i in itertools.cycle(range(len(frames))):
            in_flight -= done_ones(s, 0)
            while in_flight == window and not over.is_set():
                s.sendall(beat(epoch))
                in_flight -= done_ones(s, 0.1)
            if over.is_set():
                break
            s.sendall(frames[i] + beat(epoch))
            in_flight += 1
            sent += size
    except (OSError, EOFError) as e:
        ended = repr(e)
    over.wait()
    if ended:
        say("ended", ended)
    say("names", sent)


def gets(at, n):
    conns = []
    for i in range(int(n)):
        s = dial(at)
        s.sendall(hello(i))
        answer(s)
        conns.append(s)
    get = b"".join(frame(GET, packed((1, b"no/such/%d" % i), (2, ("f", 1)), (4, 1)),
                         req=i + 1) for i in range(2048))
    pour(conns, get)


# ---- who is limited to directories ----


def fields(data):
    """Pairs of number and value, as in packed."""
    i = 0

    def number():
        nonlocal i
        n = shift = 0
        while True:
            byte = data[i]
            i += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while i < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or number()
        yield tag >> 3, data[i:i + size]
        i += size


def picture(to, **of_node):
    """Subscribes as a mount: each field of the picture, number and value."""
    s, epoch = joined(to, mount=True, **of_node)
    s.sendall(frame(SUBSCRIBE))
    complete = False
    while not complete:
        while not has_more(s, 0.5):  # not before the master is ready
            s.sendall(beat(epoch, mount=True, **of_node))
        kind, _, payload = answer(s)
        if kind != FEED:
            continue
        for number, value in fields(payload):
            yield number, value
            complete |= number == 2 and value == 1
            if number == 3:  # more comes when this is acked
                s.sendall(frame(FEED_ACK, packed((1, ("f", *struct.unpack("<Q", value))))))
    s.close()


def seen(at):
    for number, value in picture(at):
        if number == 4:
            say("seen", dict(fields(value)).get(1, b"").decode() or "/")


def tries(at, *paths):
    s, _ = joined(at)
    for path in paths:
        name = path.encode()
        whole = (4, 1000), (5, b"0123456789abcdef"), (6, 0o644)
        for what, change in (("mkdir", op(MKDIR, name, (6, 0o755))),
                             ("setattr", op(SETATTR, name, (6, 0o700), change=1)),
                             ("rmdir", op(RMDIR, name)),
                             ("publish", op(PUBLISH, name, *whole)),
                             ("unlink", op(UNLINK, name))):
            s.sendall(frame(OPS, packed(change), req=1))
            kind = None
            while kind != OPS_DONE:
                kind, _, payload = answer(s)
                if kind == ERROR:
                    raise EOFError(text_of(payload))
            result = dict(fields(dict(fields(payload)).get(1, b"")))
            zigzag = result.get(1, 0)
            say(what, path, (zigzag + 1) // 2)


# ---- who says that it is another ----


def posing(to, peer, name, host):
    nodes = [dict(fields(value)) for number, value in
             picture(to, at=b"%s:1" % host.encode()) if number == 5]
    by = next(n[2] for n in nodes if n.get(3) == name.encode())

    say("id", by.hex())

    def greeted(lane):
        s = dial(peer)
        get = packed((1, b"no/such"), (2, ("f", 1)), (4, 1))
        s.sendall(hello(lane=lane, by=by) + (frame(GET, get, req=1) if not lane else b""))
        try:
            return s if answer(s)[0] == HELLO else None
        except (OSError, EOFError):
            return None

    say("requests", "in" if greeted(0) else "refused")
    lanes = [s for s in map(greeted, range(1, 9)) if s]
    say("lanes", "in" if len(lanes) == 8 else "refused" if not lanes else "some in")
    until_over()
    got = closed = 0
    for s in lanes:
        s.settimeout(0.05)
        try:
            data = s.recv(1 << 20)
            got += len(data)
            closed += data == b""
        except socket.timeout:
            pass
        except OSError:
            closed += 1
    say("got", got)
    say("closed", closed)


def claim(to, by, host):
    try:
        joined(to, by=bytes.fromhex(by), at=b"%s:1" % host.encode(), capacity=1 << 30)
        say("in")
    except (OSError, EOFError) as e:
        say(f"refused {e}")


# ---- a store that lies ----

SIZE = 100000


def liar(master, how):
    at = socket.socket()
    at.bind(("127.0.0.1", 0))
    at.listen(64)
    here = b"127.0.0.1:%d" % at.getsockname()[1]
    name = b"liar." + how.encode()
    asked = [0]
    bare = []  # lanes that are plain after HELLO
    ends = []
    lanes = []
    lie_of, _, by_lane = how.partition(".")
    size = {"figures": 1 << 62}.get(how, 4 << 20 if by_lane or how in ("plain", "buffer") else SIZE)

    def serve(conn):
        try:
            s = context(True).wrap_socket(conn, server_side=True) if tls_dir else conn
            s.settimeout(None)
            while True:
                kind, req, payload = answer(s)
                if kind == HELLO:
                    lane = lane_of(payload)
                    ends_tls = lane > 0 and how in ("plain", "buffer")
                    # Before HELLO: a GET for the lane may follow at once.
                    if lane > 0:
                        lanes.append(s)
                    if ends_tls and how == "buffer":
                        bare.append(socket.socket(fileno=os.dup(s.fileno())))
                    s.sendall(hello(lane=lane, plain=int(ends_tls)))
                    if ends_tls and how == "buffer":
                        return
                if kind != GET:
                    continue
                asked[0] += 1
                while by_lane and not lanes and not over.wait(0.01):
                    pass  # it is being made
                for to in lanes[:] if by_lane else [s]:
                    lie(to, req)
        except (OSError, EOFError):
            pass

    def lie(s, req):
        data = os.urandom(min(size, 4 << 20))
        if lie_of == "short":
            s.sendall(frame(DATA, req=req, bulk=size - 1) + data[1:])
        elif lie_of == "long":
            s.sendall(frame(DATA, req=req, bulk=2 * size) + data * 2)
        elif how == "holders":
            s.sendall(frame(ERROR, packed((1, 3)), req=req))  # -ENOENT
        elif how == "slow":
            s.sendall(frame(DATA, req=req, bulk=size))
            for i in range(size):
                s.sendall(data[i:i + 1])
                if over.wait(STEP_S):
                    return
        elif how == "buffer":  # a GET comes when its lane is up
            ends.append(end_of(bare.pop(), frame(BUFFER, packed((4, 1)))))
        elif how not in ("silent", "plain"):
            s.sendall(frame(DATA, req=req, bulk=size) + data)

    def accept():
        while True:
            threading.Thread(target=serve, args=(at.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    figures = {"at": here, "capacity": 1 << 30}
    if how == "figures":
        figures.update(capacity=(1 << 64) - 1, used=(1 << 64) - 2)
    s, epoch = joined(master, **figures)
    s.sendall(frame(OPS, packed((1, packed((1, 0), (2, packed(
        (1, name), (4, size), (5, b"0123456789abcdef"), (6, 0o644)))))), req=1))
    s.settimeout(0.2)

    def turn():
        s.sendall(beat(epoch, **figures))
        try:
            while s.recv(1 << 20):
                pass
        except socket.timeout:
            pass

    until_over(turn)
    say("asked", asked[0])
    for _ in range(100):  # its lanes were asked for, and end at the dialler's pace
        if ends or how != "buffer":
            break
        time.sleep(0.1)
    for end in ends:
        say("lane", end)


# ---- a master that is not one ----


def master(at):
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(address(at))
    listening.listen(64)
    count = {"dialled": 0, "received": 0}

    def serve(conn):
        try:
            s = context(True).wrap_socket(conn, server_side=True) if tls_dir else conn
            s.sendall(frame(FEED, packed((1, 1), (2, 1))))
            s.settimeout(5)
            if s.recv(1):
                count["received"] += 1
            s.recv(65536)
        except OSError:
            pass
        conn.close()

    def accept():
        while True:
            conn = listening.accept()[0]
            count["dialled"] += 1
            threading.Thread(target=serve, args=(conn,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    until_over()
    for name, n in count.items():
        say(name, n)


def main(args):
    global tls_dir, from_address
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    while args and args[0].startswith("--"):
        if args[0] == "--tls":
            tls_dir = args[1]
        elif args[0] == "--from":
            from_address = args[1]
        else:
            sys.exit(__doc__)
        args = args[2:]
    known = (client, burn, knock, oversized, replay, links, seen, tries, posing,
             claim, half, slow, grow, deaf, joins, ops, names, dirs, large_dirs,
             one_dir, user, gone, gets, liar, master)
    what = {f.__name__: f for f in known}.get(args[0]) if args else None
    if not what:
        sys.exit(__doc__)
    what(*args[1:])
    sys.stdout.flush()
    os._exit(0)  # threads may wait for peers


main(sys.argv[1:])
