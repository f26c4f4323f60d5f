"""run_nodes.py DIR PROGRAMS: overlays/tcp of tools/deploy on two nodes, started from
its very YAML (pods.py), and engines that mount it as llm-d, KServe and vLLM
production-stack do: an engine that is first, conversations, updates that hand over,
and a crash.
"""

import copy
import json
import os
import pathlib
import sys
from typing import Any

from load import Load, Talks, fill
from manifests import ENGINES, TOP, Pod, load, pods_of, render
from pods import Cluster, Host, RunningPod, StandIn, run, wait_until

SCALE = 160  # of memory: 50gb become 320 MiB
MOUNT = "/var/lib/kvpool/mnt/pool"


def engine(name: str, volume: Any, mount: Any, args: list[str]) -> Pod:
    """A pod of an engine, as its project's manifests make it."""
    container = {
        "name": "vllm",
        "command": ["vllm", "serve", "Qwen/Qwen3-32B"],
        "args": args,
        "volumeMounts": [mount],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
        "resources": {"limits": {"memory": "16Gi"}},
    }
    spec = {"containers": [container], "volumes": [volume]}
    template = {"metadata": {"labels": {}}, "spec": spec}
    return Pod(name, {"kind": "Deployment"}, template, 1)


def llm_d_engine() -> Pod:
    """guides/tiered-prefix-cache/modelserver/gpu/vllm/native/fs: names of claim,
    volume, directory."""
    tier = {"type": "fs", "root_dir": "/mnt/files-storage/kv-cache"}
    config = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "TieringOffloadingSpec",
            "cpu_bytes_to_use": 10 << 30,
            "secondary_tiers": [tier],
        },
    }
    pod = engine(
        "llm-d",
        {
            "name": "files-storage",
            "persistentVolumeClaim": {"claimName": "llm-d-kv-cache-storage"},
        },
        {"name": "files-storage", "mountPath": "/mnt/files-storage"},
        ["--kv-transfer-config", json.dumps(config)],
    )
    # Names of chunks are equal on all engines only with this.
    pod.spec["containers"][0]["env"] = [{"name": "PYTHONHASHSEED", "value": "42"}]
    return pod


def stack_engine() -> Pod:
    """From our values for the chart."""
    (values,) = load(TOP / "engines" / "vllm-production-stack" / "values.yaml")
    (model,) = values["servingEngineSpec"]["modelSpec"]
    (volume,), (mount,) = model["extraVolumes"], model["extraVolumeMounts"]
    return engine("stack", volume, mount, model["vllmConfig"]["extraArgs"])


def kserve_engine() -> Pod:
    """Made of our service as KServe makes it: a path of the claim, at a place of its
    own. Its user is one of those that OpenShift gives."""
    (service,) = load(TOP / "engines" / "kserve" / "service.yaml")
    (tier,) = service["spec"]["kvCacheOffloading"]["secondary"]
    ref = tier["fileSystem"]["pvc"]["ref"]
    name, at = "kv-cache-0", "/mnt/kv-cache-0"
    config = {
        "kv_connector_extra_config": {"secondary_tiers": [{"type": "fs", "root_dir": at}]}
    }
    pod = engine(
        "kserve",
        {"name": name, "persistentVolumeClaim": {"claimName": ref["name"]}},
        {"name": name, "mountPath": at, "subPath": ref["path"]},
        ["--kv-transfer-config", json.dumps(config)],
    )
    pod.spec["securityContext"] = {"runAsUser": 1000650000, "runAsNonRoot": True}
    return pod


class Nodes:
    def __init__(
        self, top: pathlib.Path, programs: pathlib.Path, engine: StandIn | None = None
    ) -> None:
        self.cluster = Cluster(top, programs, SCALE, engine)
        pods = {p.name: p for p in pods_of(render(TOP / "overlays" / "tcp"))}
        self.master, self.node = pods["kvpool-master"], pods["kvpool-node"]
        self.hosts = [Host(self.cluster, f"node-{i}") for i in (1, 2)]
        self.current: dict[str, RunningPod] = {}
        self.started = 0
        for o in [o for e in ENGINES for o in load(e)]:
            if o["kind"] == "PersistentVolume":
                claim = o["spec"]["claimRef"]["name"]
                self.cluster.claims[claim] = o["spec"]["hostPath"]["path"]

    def start_master(self) -> None:
        pod = self.cluster.start(self.master, "kvpool-master-0")
        self.cluster.name_service("kvpool-master.kvpool.svc", pod.ip)
        pod.wait_ready()

    def make_daemon(self, host: Host) -> RunningPod:
        self.started += 1
        name = f"kvpool-node-{self.started}"
        pod = RunningPod(self.cluster, self.node, name, host)
        self.cluster.running.append(pod)
        return pod

    def update(self, host: Host) -> None:
        """As the DaemonSet's controller does with maxSurge: 1."""
        old, new = self.current[host.name], self.make_daemon(host)
        new.start()
        new.wait_ready()
        for c in old.containers:
            assert c.process and c.process.poll() is None, "the old one ended"
        rc, text = old.container("kvpoold").exec(
            ["kvpool", "healthz", "--ready", "--own"], 10
        )
        assert rc == 1 and "another container" in text, text
        assert new.is_ready() and not old.is_ready()
        old.stop()
        assert new.is_ready()
        self.current[host.name] = new

    def crash(self, host: Host) -> None:
        """All of the daemon's container is killed, as by its memory limit, and
        started again as the kubelet does. The keeper's goes on."""
        c = self.current[host.name].container("kvpoold")
        c.kill()
        c.start()
        c.wait_ready()


def test_first_engine(nodes: Nodes) -> RunningPod:
    """Before there is a mount: nothing is written to the host's disk."""
    host = nodes.hosts[0]
    daemon = nodes.make_daemon(host)
    daemon.start_init()
    try:
        RunningPod(nodes.cluster, llm_d_engine(), "too-early", host)
    except FileNotFoundError as e:
        print(f"   a claim waits: {e}")
    else:
        raise AssertionError("the claim's directory is there without a mount")
    early = copy.deepcopy(stack_engine())
    early.spec["containers"][0]["command"] = ["sleep", "1000"]
    early.spec["containers"][0]["args"] = []
    pod = nodes.cluster.start(early, "early", host)
    (c,) = pod.containers
    wait_until("the engine", 10, c.command_runs)
    for words in (
        ["mkdir", "/mnt/kvpool/pool/volume"],
        ["touch", "/mnt/kvpool/pool/x"],
    ):
        rc, text = c.exec(words, 10)
        assert rc and "not permitted" in text, f"{words}: {rc} {text}"
    assert not os.listdir(host.path(MOUNT))
    for c in daemon.containers:
        c.start()
    daemon.wait_ready()
    nodes.current[host.name] = daemon
    rc, text = pod.containers[0].exec(["ls", "-a", "/mnt/kvpool/pool"], 10)
    assert rc == 0 and "volume" in text, f"it does not see the mount: {text}"
    return pod


def test(nodes: Nodes) -> None:
    print("== the master")
    nodes.start_master()
    print("== an engine that starts before the mount writes nothing to the disk")
    early = test_first_engine(nodes)
    print("== a daemon on each node")
    second = nodes.make_daemon(nodes.hosts[1])
    second.start()
    second.wait_ready()
    nodes.current[nodes.hosts[1].name] = second
    early.kill()
    early.forget()

    print("== conversations with engines on both nodes, by llm-d's claim")
    engines = [
        nodes.cluster.start(llm_d_engine(), f"llm-d-{h.name}", h) for h in nodes.hosts
    ]
    stack = nodes.cluster.start(stack_engine(), "stack", nodes.hosts[1])
    for e in [*engines, stack]:
        e.wait_ready()
    talks = Talks([f"http://{e.ip}:8000" for e in engines])
    other = Talks([f"http://{stack.ip}:8000"], seed=2)
    for h in nodes.hosts:
        wait_until("the directory", 10, h.path(f"{MOUNT}/volume/kv-cache").is_dir)
    cache = str(nodes.hosts[0].path(f"{MOUNT}/volume/kv-cache"))
    run("setfattr", "-n", "user.kvpool.replicas", "-v", "2", cache)
    talks.round()
    other.round()
    for name, t in (("llm-d", talks), ("production-stack", other)):
        print(f"   {name}: {t.turns} turns, {t.loaded} of {t.could} blocks loaded")
        assert t.loaded == t.could > 0

    print("== the same by KServe's claim, as a user who is not root")
    third = [nodes.cluster.start(kserve_engine(), f"kserve-{h.name}", h) for h in nodes.hosts]
    for e in third:
        e.wait_ready()
    served = Talks([f"http://{e.ip}:8000" for e in third], seed=3)
    served.round()
    print(f"   {served.turns} turns, {served.loaded} of {served.could} blocks loaded")
    assert served.loaded == served.could > 0
    for e in third:
        e.kill()
        e.forget()

    print("== each node is updated under load; the old pod waits, not ready")
    with Load(talks), Load(other):
        for host in nodes.hosts:
            nodes.update(host)
    for t in (talks, other):
        print(f"   {t.turns} turns, {t.loaded} of {t.could} blocks loaded")
        assert t.loaded == t.could and t.lost() == 0

    print("== each daemon's container is killed; engines go on with their mounts")
    for host in nodes.hosts:
        nodes.crash(host)
        lost = talks.lost() + other.lost()
        print(f"   {host.name}: {lost} blocks lost")
        assert lost == 0

    print("== the stores are filled, by both mounts; each pod's memory")
    for host in nodes.hosts:
        (folder := host.path(f"{MOUNT}/{host.name}")).mkdir()
        fill(folder)
    daemons = [pod.name for pod in nodes.current.values()]
    for pod in nodes.cluster.running:
        peak, limit, kills = pod.memory()
        print(f"   {pod.name}: peak {peak >> 20} of {limit >> 20} MiB")
        assert 0 < peak and not kills and (not limit or peak <= limit)
        store = sum(int(c.env().get("KVPOOL_STORE_SIZE", 0)) for c in pod.containers)
        # What is in a store is charged to the pod that wrote it there.
        assert pod.name not in daemons or peak >= store // 2, f"{store} bytes of store"


def main() -> None:
    nodes = Nodes(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
    try:
        test(nodes)
        nodes.cluster.stop()
        for host in nodes.hosts:
            left = os.listdir(host.path(MOUNT))
            assert not left, f"below the mount: {left}"
    finally:
        nodes.cluster.close()


if __name__ == "__main__":
    main()
