"""run_group.py DIR PROGRAMS: the RoleBasedGroup of tools/deploy/rbg, started from its
very YAML (pods.py): roles in the order of their dependencies, the declared probes,
conversations with both kinds of engines, updates in place, scaling, and the loss of
each store in turn.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

from load import Load, Talks, fill
from manifests import RBG, Pod, load, pods_of
from pods import Cluster, RunningPod, StandIn, run, wait_until
from rules import start_order

SCALE = 40  # of memory: 10gb become 256 MiB


class Group:
    def __init__(
        self, top: pathlib.Path, programs: pathlib.Path, engine: StandIn | None = None
    ) -> None:
        self.cluster = Cluster(top, programs, SCALE, engine)
        self.roles = {p.name: p for p in pods_of(load(RBG))}
        self.name = load(RBG)[0]["metadata"]["name"]
        self.running: dict[str, RunningPod] = {}
        self.counts: dict[str, int] = {}

    def start_one(self, role: str) -> RunningPod:
        n = self.counts.get(role, 0)
        self.counts[role] = n + 1
        pod = self.cluster.start(self.roles[role], f"{self.name}-{role}-{n}")
        self.running[pod.name] = pod
        if n == 0:
            # Resolves before the pod is ready (publishNotReadyAddresses).
            self.cluster.name_service(f"s-{self.name}-{role}", pod.ip)
        return pod

    def start_role(self, pod: Pod) -> None:
        """All of a role at once, once all it depends on is ready."""
        for d in pod.dependencies:
            for r in self.of(d):
                assert r.is_ready(), f"{r.name} is not ready"
        for r in [self.start_one(pod.name) for _ in range(pod.replicas)]:
            r.wait_ready()

    def of(self, role: str) -> list[RunningPod]:
        return [r for r in self.running.values() if r.pod.name == role]

    def ask(self, *words: str) -> str:
        """`kvpool ...` at the master, as an operator in its container."""
        (master,) = self.of("kvpool-master")
        rc, text = master.containers[0].exec(["kvpool", *words], 120)
        if rc:
            raise RuntimeError(f"kvpool {words}: {text}")
        return text

    def is_whole(self) -> bool:
        status = json.loads(self.ask("status", "--json"))
        repair = status["repair"]
        return not (
            status["pending_replications"]
            or repair["endangered"]
            or repair["bytes_left"]
        )

    def is_gone(self, name: str) -> bool:
        nodes = json.loads(self.ask("nodes", "--json"))["nodes"]
        return not any(n["name"] == name and n["state"] != "gone" for n in nodes)

    def stores(self) -> list[RunningPod]:
        return [r for r in self.running.values() if "kvpool-store" in r.pod.name or
                any(c.name == "kvpool-store" for c in r.containers)]  # fmt: skip

    def update_in_place(self, pod: RunningPod) -> None:
        """As RBG changes the image: the kubelet ends the container and starts the
        next one, in the same pod."""
        c = pod.container("kvpool-store")
        c.stop_and_check()
        c.start()
        c.wait_started()
        c.wait_ready()

    def replace(self, pod: RunningPod) -> None:
        """The pod is lost with its memory; another one comes."""
        for c in pod.containers:
            c.kill()
        pod.forget()
        del self.running[pod.name]
        self.start_one(pod.pod.name).wait_ready()

    def check_memory(self) -> None:
        for pod in self.running.values():
            assert pod.is_alive(), f"{pod.name} is not alive"
            peak, limit, kills = pod.memory()
            print(f"   {pod.name}: peak {peak >> 20} of {limit >> 20} MiB")
            assert 0 < peak <= limit and not kills, f"{pod.name}: {kills} killed"
            # All of the store is charged to it.
            least = sum(
                int(c.env().get("KVPOOL_STORE_SIZE", 0)) * 3 // 4 for c in pod.containers
            )
            assert peak > least, f"{pod.name}: {peak}, not {least}"


@contextlib.contextmanager
def operator(group: Group) -> Iterator[pathlib.Path]:
    """An operator's mount, outside of the group."""
    at = group.cluster.top / "operator"
    at.mkdir(exist_ok=True)
    (master,) = group.of("kvpool-master")
    bin_ = group.cluster.image / "usr" / "bin" / "kvpoold"
    with open(group.cluster.top / "operator.log", "ab") as log:
        daemon = subprocess.Popen(
            [
                "nsenter",
                "--net=/run/netns/fabric",
                bin_,
                "--foreground",
                "--insecure",
                "--master",
                f"{master.ip}:7070",
                "--mount",
                str(at),
                "--listen",
                "10.78.0.1:7072",
                "--run-dir",
                f"{group.cluster.top}/run",
                "--admin",
                "127.0.0.1:7073",
            ],  # fmt: skip
            stderr=log,
        )
    wait_until("the operator's mount", 20, lambda: os.path.ismount(at))
    wait_until("the directory", 20, lambda: (at / "vllm").is_dir())
    yield at
    daemon.terminate()
    assert daemon.wait(20) == 0


def set_replicas(group: Group, count: int) -> None:
    with operator(group) as at:
        run("setfattr", "-n", "user.kvpool.replicas", "-v", str(count), str(at / "vllm"))


def test(group: Group) -> None:
    for role in start_order(list(group.roles.values())):
        print(f"== role {role.name}: {role.replicas}")
        group.start_role(role)
    engines = group.of("engine") + group.of("engine-contributing")
    nodes = json.loads(group.ask("nodes", "--json"))["nodes"]
    stores = [n for n in nodes if n["is_store"]]
    assert len(stores) == 3, f"stores: {stores}"

    print("== conversations with both engines")
    talks = Talks([f"http://{e.ip}:8000" for e in engines])
    talks.round()
    print(f"   {talks.turns} turns, {talks.loaded} of {talks.could} blocks loaded")
    assert talks.loaded == talks.could > 0

    print("== each store is updated in place: all keys are there, without copies")
    for pod in group.stores():
        group.update_in_place(pod)
        lost = talks.lost()
        print(f"   {pod.name}: {lost} blocks lost")
        assert lost == 0

    print("== two copies; each store is updated in place under load")
    set_replicas(group, 2)
    wait_until("two copies of all", 60, group.is_whole)
    with Load(talks):
        for pod in group.stores():
            group.update_in_place(pod)
    wait_until("two copies of all", 60, group.is_whole)
    print(f"   {talks.turns} turns, {talks.loaded} of {talks.could} blocks loaded")
    assert talks.loaded == talks.could and talks.lost() == 0

    print("== one store more, and one less, under load: drained first")
    with Load(talks):
        more = group.start_one("kvpool-store")
        more.wait_ready()
        time.sleep(1)
        gone = group.of("kvpool-store")[0]
        group.ask("drain", gone.name, "--admin", "127.0.0.1:7071")
        gone.stop()
        del group.running[gone.name]
    print(f"   {talks.turns} turns, {talks.loaded} of {talks.could} blocks loaded")
    wait_until("two copies of all", 60, group.is_whole)
    assert talks.loaded == talks.could and talks.lost() == 0

    print("== each store is lost with its memory, in turn: nothing is lost")
    for pod in group.of("kvpool-store"):
        group.replace(pod)
        # Until then the master waits for it to come back.
        wait_until("the loss", 30, lambda pod=pod: group.is_gone(pod.name))  # type: ignore[misc]
        wait_until("two copies of all", 60, group.is_whole)
    lost = talks.lost()
    print(f"   {lost} blocks lost")
    assert lost == 0

    print("== the stores are filled; each pod is alive, and its memory")
    with operator(group) as at:
        fill(at)
    group.check_memory()


def main() -> None:
    group = Group(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    try:
        test(group)
        group.cluster.stop()
    finally:
        group.cluster.close()


if __name__ == "__main__":
    main()
