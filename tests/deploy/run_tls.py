"""run_tls.py DIR PROGRAMS: overlays/tls of tools/deploy on two nodes, with certificates
as its Certificates ask for them; `kvpool certs` signs them in cert-manager's place.
"""

import os
import pathlib
import sys
from typing import Any

from manifests import TOP, Object, pods_of, render
from pods import Cluster, Host, RunningPod, run, wait_until
from run_nodes import MOUNT, SCALE


def make_secrets(cluster: Cluster, objects: list[Object]) -> None:
    kvpool = str(cluster.image / "usr" / "bin" / "kvpool")
    ca, made = cluster.top / "ca", 0
    for o in objects:
        if o["kind"] != "Certificate" or o["spec"].get("isCA"):
            continue
        spec = o["spec"]
        (uri,) = spec["uris"]  # kvpool://CLUSTER/ROLE
        name, role = uri.removeprefix("kvpool://").split("/")
        if not ca.exists():
            run(kvpool, "certs", "init", "--dir", str(ca), "--cluster", name)
        out = cluster.top / "secrets" / spec["secretName"]
        out.parent.mkdir(exist_ok=True)
        hosts = ",".join(spec["dnsNames"])
        run(
            kvpool, "certs", "issue", "--dir", str(ca), "--role", role,
            "--host", hosts, "--out", str(out),
        )  # fmt: skip
        cluster.secrets[spec["secretName"]] = out
        made += 1
    assert made == 2, made


def test(cluster: Cluster) -> None:
    objects = render(TOP / "overlays" / "tls")
    pods = {p.name: p for p in pods_of(objects)}
    make_secrets(cluster, objects)
    print("== the master, as a user who is not root")
    master = cluster.start(pods["kvpool-master"], "kvpool-master-0")
    cluster.name_service("kvpool-master.kvpool.svc", master.ip)
    master.wait_ready()
    print("== a daemon on each node")
    nodes: list[RunningPod] = []
    for name in ("node-1", "node-2"):
        host = Host(cluster, name)
        cluster.name_service(name, host.ip)
        nodes.append(cluster.start(pods["kvpool-node"], f"kvpool-{name}", host))
    for n in nodes:
        n.wait_ready()
    print("== what one writes the other reads, over TLS")
    paths: list[Any] = [
        n.host.path(f"{MOUNT}/volume") / "object" for n in nodes if n.host
    ]
    content = os.urandom(1 << 20)
    paths[0].write_bytes(content)
    wait_until("the object", 20, paths[1].exists)
    assert paths[1].read_bytes() == content
    for n in nodes:
        rc, text = n.containers[0].exec(["kvpool", "status", "--json"], 10)
        assert rc == 0 and '"connected": true' in text, text
    print("== without a certificate nothing is answered")
    url = f"http://{master.ip}:7071/metrics"
    rc, text = (
        nodes[0]
        .containers[0]
        .exec(["curl", "-s", "--noproxy", "*", "--max-time", "5", url], 10)
    )
    assert rc != 0, text


def main() -> None:
    cluster = Cluster(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), SCALE)
    try:
        test(cluster)
        cluster.stop()
    finally:
        cluster.close()


if __name__ == "__main__":
    main()
