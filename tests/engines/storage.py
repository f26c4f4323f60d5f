"""Drive an engine's own storage code, as installed, on a directory.

    storage.py FORM DIR VERB [OPTION...]

FORM is one of the classes of forms_*.py, such as lmcache_fs. What a key holds
follows from the key and who wrote it (payload), so any process can tell right
bytes from wrong ones. A load is a miss, or right; anything else, an exception
of the engine included unless MAY-FAIL says so, ends this with status 1.
"""

import argparse
import errno
import faulthandler
import importlib
import json
import os
import random
import signal
import time

import numpy

FORMS = {
    "kvpool_lmcache_native": "forms_lmcache",
    "kvpool_lmcache_plugin": "forms_lmcache",
    "kvpool_lmcache_plugin_pin": "forms_lmcache",
    "kvpool_lmcache_remote": "forms_lmcache",
    "kvpool_sglang": "forms_sglang",
    "kvpool_sglang_flat": "forms_sglang",
    "kvpool_vllm": "forms_vllm",
    "lmcache_disk": "forms_lmcache",
    "lmcache_disk_direct": "forms_lmcache",
    "lmcache_fs": "forms_lmcache",
    "lmcache_mp_fs": "forms_lmcache",
    "lmcache_mp_fs_native": "forms_lmcache",
    "lmcache_mp_fs_native_direct": "forms_lmcache",
    "lmcache_mp_nixl": "forms_lmcache",
    "sglang_file": "forms_sglang",
    "sglang_nixl": "forms_sglang",
    "vllm_fs": "forms_vllm",
}
BATCH = 8
LOADED_AGAIN = 4  # after each batch, in churn
RECENT = 64
# LMCache's local_disk leaves the memory of a write that failed to the garbage
# collector, and waits for ever once there is none: nobody is to hurry it.
AFTER_FAILURE_S = 0.5
# The kernel's own answers at a mount whose daemon was killed: to what was under
# way, and to what comes later. Some engines hand them on (SGLang's file backend).
DAEMON_GONE = (errno.ECONNABORTED, errno.ENOTCONN)


class Wrong(Exception):
    """What must never be: wrong bytes, or a file half there."""


class Unanswered(Exception):
    """The engine's own code says nothing to a request any more."""


def payload(key, writer, size):
    seed = numpy.random.PCG64([key, writer])
    return numpy.random.Generator(seed).bytes(size)


def check(key, data, size, writers):
    """The writer whose bytes these are, wholly."""
    for writer in writers:
        if data == payload(key, writer, size):
            return writer
    raise Wrong(
        f"key {key}: {len(data)} bytes, not those of a writer "
        f"(wanted {size} of {list(writers)}), begin {data[:16].hex()}"
    )


def batches(keys):
    keys = list(keys)
    return [keys[i : i + BATCH] for i in range(0, len(keys), BATCH)]


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.005)


class Driver:
    def __init__(self, form, options):
        self.form = form
        self.o = options
        self.count = dict(stored=0, failed=0, hits=0, misses=0, unanswered=0, rounds=0)

    def may_fail(self):
        return bool(self.o.may_fail) and os.path.exists(self.o.may_fail)

    def store(self, keys):
        data = [payload(k, self.o.writer, self.form.size) for k in keys]
        allowed = self.may_fail()
        done = self.form.store(keys, data)
        bad = [k for k, ok in zip(keys, done) if not ok]
        self.count["stored"] += len(keys) - len(bad)
        self.count["failed"] += len(bad)
        if bad and not allowed and not self.may_fail():
            raise Wrong(f"keys that could not be stored: {bad}")
        if bad:
            time.sleep(AFTER_FAILURE_S)

    def load(self, keys):
        """All that is there is right."""
        allowed = self.may_fail()
        try:
            loaded = self.form.load(keys)
        except (Unanswered, OSError) as e:
            if isinstance(e, OSError) and e.errno not in DAEMON_GONE:
                raise
            if not allowed and not self.may_fail():
                raise Wrong(f"no answer for {keys}: {e}") from None
            self.count["unanswered"] += 1
            return
        for key, data in zip(keys, loaded):
            if data is None:
                self.count["misses"] += 1
            else:
                check(key, data, self.form.size, self.o.writers)
                self.count["hits"] += 1

    # ---- verbs ----

    def verb_store(self):
        for keys in batches(self.o.keys):
            self.store(keys)

    def verb_load(self):
        for keys in batches(self.o.keys):
            self.load(keys)
        if self.o.hits == "all" and self.count["misses"]:
            raise Wrong(f"{self.count['misses']} misses")
        if self.o.hits == "none" and self.count["hits"]:
            raise Wrong(f"{self.count['hits']} hits")

    def verb_watch(self):
        """Load all keys over and over, and look at the files' sizes, until
        there is the file UNTIL: each has one size as long as it lives. Then
        all of them are there."""
        sizes = {}
        while not os.path.exists(self.o.until):
            for keys in batches(self.o.keys):
                self.load(keys)
                self.look(self.o.dir, sizes)
            self.count["rounds"] += 1
        if not self.count["hits"]:
            raise Wrong("nothing was ever seen")
        if len(set(sizes.values())) != 1:
            raise Wrong(f"files of several sizes: {set(sizes.values())}")
        self.count["names"] = len(sizes)
        missed = self.count["misses"]
        for keys in batches(self.o.keys):
            self.load(keys)
        if self.count["misses"] > missed:
            raise Wrong(f"{self.count['misses'] - missed} are not there in the end")

    def look(self, directory, sizes):
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                self.look(entry.path, sizes)
            elif self.form.is_object(entry.name):
                try:
                    size = os.stat(entry.path).st_size
                except FileNotFoundError:
                    continue
                if sizes.setdefault(entry.path, size) != size:
                    raise Wrong(f"{entry.name} had {sizes[entry.path]}, has {size}")

    def verb_churn(self):
        """Store new keys and load old ones until there is the file UNTIL."""
        chance = random.Random(1)
        first = key = self.o.keys[0]
        while not os.path.exists(self.o.until):
            self.store(range(key, key + BATCH))
            key += BATCH
            # Half of them may well be there still.
            recent = range(max(first, key - RECENT), key)
            half = LOADED_AGAIN // 2
            old = chance.sample(recent, half) + chance.sample(range(first, key), half)
            self.load(list(dict.fromkeys(old)))
            self.count["rounds"] += 1
            self.say_status()
        self.count["keys"] = key - first

    def say_status(self):
        if self.o.status:
            with open(self.o.status + ".new", "w") as f:
                json.dump(dict(self.count, pid=os.getpid()), f)
            os.replace(self.o.status + ".new", self.o.status)


def key_range(text):
    begin, end = text.split(":")
    return range(int(begin), int(end))


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("form", choices=FORMS)
    p.add_argument("dir")
    p.add_argument("verb", choices=["store", "load", "watch", "churn"])
    p.add_argument("--keys", type=key_range, default=range(0, 32))
    p.add_argument("--writer", type=int, default=1)
    p.add_argument("--writers", type=int, nargs="+", default=[1])
    p.add_argument("--hits", choices=["all", "any", "none"], default="all")
    p.add_argument("--ready", help="made once the engine's code is set up")
    p.add_argument("--go", help="waited for then")
    p.add_argument("--until")
    p.add_argument("--may-fail", help="while it is there, stores may fail")
    p.add_argument("--status", help="churn: counts, after each round")
    return p.parse_args()


def main():
    o = parse()
    faulthandler.register(signal.SIGUSR1)  # who waits for it asks where it is
    os.makedirs(o.dir, exist_ok=True)
    form_class = getattr(importlib.import_module(FORMS[o.form]), o.form)
    form = form_class(o.dir)
    if o.ready:
        open(o.ready, "w").close()
    if o.go:
        wait_for(o.go)
    driver = Driver(form, o)
    status = 0
    try:
        getattr(driver, "verb_" + o.verb)()
    except Wrong as e:
        print(f"WRONG: {e}")
        status = 1
    except Unanswered:
        print("WRONG: no answer")
        status = 1
    form.close()
    print(f"{o.form} {o.verb}: {json.dumps(driver.count)}", flush=True)
    # Whatever threads the engine left: the verdict stands.
    os._exit(status)


if __name__ == "__main__":
    import storage  # the one whose exceptions the forms know

    storage.main()
