"""Asks and puts while daemons are killed, for it_python.sh, until there is the
file FILE; then all has to work: survive.py AT BUFFER_DIR FILE."""

import os
import sys
import time

import kvpool

SIZE = 100000
at, buffer_dir, enough = sys.argv[1:]
pool = kvpool.Pool(at, buffer_dir=buffer_dir)
ns = pool.namespace("ns")
memory = pool.register(bytearray(4 * SIZE))
puts = hits = misses = failed = 0
while not os.path.exists(enough):
    keys = [f"s{puts + i}" for i in range(2)]
    for result in ns.batch_put_from(keys, [memory[:SIZE], memory[SIZE : 2 * SIZE]]):
        failed += result < 0
        puts += 1
    there = ns.exists_prefix(keys)
    got = ns.batch_get_into(keys, [memory[2 * SIZE : 3 * SIZE], memory[3 * SIZE :]])
    hits += sum(r == SIZE for r in got)
    misses += sum(r < 0 for r in got)
    # Old ones may be gone with their node: a miss, or all of it.
    for key in (f"s{puts // 2}", f"s{puts // 3}"):
        try:
            if ns.get_into(key, memory[:SIZE]) != SIZE:
                sys.exit(f"{key} is short")
        except kvpool.NotFound:
            misses += 1
    time.sleep(0.02)
print(f"{puts} puts, {failed} failed, {hits} hits, {misses} misses")
ns.put_from("after", memory[:SIZE], sync=True)
if ns.get_into("after", memory) != SIZE:
    sys.exit("not what was put")
pool.close()
