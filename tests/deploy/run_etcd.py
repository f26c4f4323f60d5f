"""run_etcd.py DIR PROGRAMS: overlays/etcd of tools/deploy on two nodes, with an etcd:
three masters, of which one is ready; it is lost, and the pool goes on.
"""

import os
import pathlib
import subprocess
import sys

from manifests import TOP, pods_of, render
from pods import Cluster, Host, RunningPod, wait_until
from run_nodes import MOUNT, SCALE

URL = "http://10.78.0.1:2379"


def start_etcd(cluster: Cluster) -> subprocess.Popen[bytes]:
    """In the network that all pods reach."""
    with open(cluster.top / "etcd.out", "wb") as log:
        etcd = subprocess.Popen(
            [
                "etcd",
                "--data-dir",
                str(cluster.top / "etcd"),
                "--log-level",
                "error",
                "--listen-client-urls",
                URL,
                "--advertise-client-urls",
                URL,
            ],  # fmt: skip
            stdout=log,
            stderr=log,
        )
    for name in ("kvpool-etcd", "kvpool-etcd.kvpool.svc"):
        cluster.name_service(name, "10.78.0.1")
    return etcd


def lead(cluster: Cluster, masters: list[RunningPod]) -> RunningPod:
    """The one that is ready, to which the Service leads."""
    found: list[RunningPod] = []

    def one() -> bool:
        found[:] = [m for m in masters if m.is_ready()]
        return len(found) == 1

    wait_until("one master that is ready", 40, one)
    cluster.name_service("kvpool-master.kvpool.svc", found[0].ip)
    return found[0]


def put(node: RunningPod, name: str) -> bytes:
    """An object that is known to the master when this returns."""
    assert node.host
    folder = node.host.path(f"{MOUNT}/volume")
    content = os.urandom(1 << 20)
    (folder / name).write_bytes(content)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return content


def get(node: RunningPod, name: str) -> bytes:
    assert node.host
    path = node.host.path(f"{MOUNT}/volume") / name
    wait_until(f"object {name}", 20, path.exists)
    return path.read_bytes()


def test(cluster: Cluster) -> None:
    pods = {p.name: p for p in pods_of(render(TOP / "overlays" / "etcd"))}
    count = pods["kvpool-master"].replicas
    print(f"== {count} masters, one of which is ready")
    masters = [
        cluster.start(pods["kvpool-master"], f"kvpool-master-{i}") for i in range(count)
    ]
    for m in masters:
        for c in m.containers:
            c.wait_started()
    leader = lead(cluster, masters)
    print(f"   {leader.name}")
    print("== a daemon on each node")
    nodes = [
        cluster.start(pods["kvpool-node"], f"kvpool-{n}", Host(cluster, n))
        for n in ("node-1", "node-2")
    ]
    for n in nodes:
        n.wait_ready()
    before = put(nodes[0], "before")
    assert get(nodes[1], "before") == before
    print("== the master is lost")
    leader.kill()
    leader.forget()
    masters.remove(leader)
    # The pool can be read without a master.
    assert get(nodes[1], "before") == before
    print(f"   {lead(cluster, masters).name}")
    after = put(nodes[1], "after")
    assert get(nodes[0], "after") == after and get(nodes[0], "before") == before


def main() -> None:
    cluster = Cluster(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), SCALE)
    etcd = start_etcd(cluster)
    try:
        test(cluster)
        cluster.stop()
    finally:
        cluster.close()
        etcd.kill()
        etcd.wait()


if __name__ == "__main__":
    main()
