"""Mistakes, each of which the checker must find."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from manifests import Object, pods_of

TCP, GROUP, LLMD = "overlay tcp", "rbg", "engine llm-d"
MONITORING = "monitoring"


@dataclasses.dataclass(frozen=True)
class Mutation:
    what: str
    where: str  # which objects
    change: Callable[[list[Object]], Any]
    expect: str  # in what is found

    def applied(self, sets: dict[str, list[Object]]) -> tuple[str, list[Object]]:
        objects = copy.deepcopy(sets[self.where])
        self.change(objects)
        if objects == sets[self.where]:
            raise ValueError(f"{self.what}: nothing was changed")
        return self.where, objects


def _pod(objects: list[Object], name: str) -> Any:
    return next(p for p in pods_of(objects) if p.name == name)


def _container(objects: list[Object], pod: str, index: int = 0) -> Any:
    return _pod(objects, pod).containers()[index]


def _env(c: Any, name: str) -> Any:
    return next(e for e in c["env"] if e["name"] == name)


def _kind(objects: list[Object], kind: str) -> Any:
    return next(o for o in objects if o["kind"] == kind)


def _rename(d: Any, old: str, new: str) -> None:
    d[new] = d.pop(old)


def _cycle(objects: list[Object]) -> None:
    objects[0]["spec"]["roles"][0]["dependencies"] = ["engine"]


def _no_mountpoint(objects: list[Object]) -> None:
    del _pod(objects, "kvpool-node").spec["initContainers"]


def _pre_stop(objects: list[Object], pod: str, *words: str) -> None:
    c = _container(objects, pod)
    c.setdefault("lifecycle", {})["preStop"] = {"exec": {"command": list(words)}}


def _node(o: list[Object]) -> Any:
    return _container(o, "kvpool-node")


def _store(o: list[Object]) -> Any:
    return _container(o, "kvpool-store")


def _set(target: Any, **values: Any) -> None:
    target.update(values)


MUTATIONS = [
    Mutation(
        "a misspelt field of the group", GROUP,
        lambda o: _rename(
            o[0]["spec"]["roles"][1]["rolloutStrategy"]["rollingUpdate"],
            "maxUnavailable", "maxUnavailabel"),
        "maxUnavailabel"),
    Mutation(
        "a misspelt field of a container in the group", GROUP,
        lambda o: _rename(_store(o), "readinessProbe", "readynessProbe"),
        "readynessProbe"),
    Mutation(
        "v1alpha1's place of the template", GROUP,
        lambda o: _set(o[0]["spec"]["roles"][0],
                       template=o[0]["spec"]["roles"][0].pop("standalonePattern")["template"]),
        "template"),
    Mutation(
        "a number as text", GROUP,
        lambda o: _set(o[0]["spec"]["roles"][1], replicas="2"), "is not of type"),
    Mutation(
        "a misspelt field of the DaemonSet", TCP,
        lambda o: _rename(_pod(o, "kvpool-node").spec, "hostNetwork", "hostNetwrok"),
        "hostNetwrok"),
    Mutation(
        "a variable that is a boolean", TCP,
        lambda o: _set(_env(_node(o), "KVPOOL_INSECURE"), value=True), "is not of type"),
    Mutation(
        "Bidirectional without privileged", TCP,
        lambda o: _set(_node(o), securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
        "Bidirectional needs privileged"),
    Mutation(
        "privileged for nothing", GROUP,
        lambda o: _set(_store(o)["securityContext"], privileged=True),
        "need not be"),
    Mutation(
        "the mount point as the volume", TCP,
        lambda o: _set(_env(_node(o), "KVPOOL_MOUNT"), value="/var/lib/kvpool/mnt"),
        "bind its parent"),
    Mutation("no immutable directory", TCP, _no_mountpoint, "immutable"),
    Mutation(
        "a misspelt variable", GROUP,
        lambda o: _set(_env(_store(o), "KVPOOL_STORE_SIZE"), name="KVPOOL_STORESIZE"),
        "KVPOOL_STORESIZE is no option"),
    Mutation(
        "a misspelt option", TCP,
        lambda o: _node(o)["args"].append("--keepr"), "--keepr is no option"),
    Mutation(
        "an option in a probe that is none", GROUP,
        lambda o: _store(o)["readinessProbe"]["exec"]["command"].append("--redy"),
        "--redy is no option"),
    Mutation(
        "a variable in a probe", TCP,
        lambda o: _node(o)["readinessProbe"]["exec"]["command"].extend(
            ["--admin", "$(NODE_IP):7073"]),
        "not expanded"),
    Mutation(
        "a probe of another port", GROUP,
        lambda o: _store(o)["readinessProbe"]["exec"]["command"].extend(
            ["--admin", "127.0.0.1:7071"]),
        "does not listen on 127.0.0.1:7071"),
    Mutation(
        "an engine's probe of another port", GROUP,
        lambda o: _set(_container(o, "engine")["readinessProbe"]["httpGet"], port=8080),
        "nobody listens on port 8080"),
    Mutation(
        "a variable used before it is defined", GROUP,
        lambda o: _store(o)["env"].reverse(), "not defined above"),
    Mutation("a cycle", GROUP, _cycle, "a cycle of"),
    Mutation(
        "a role that is not there", GROUP,
        lambda o: _set(o[0]["spec"]["roles"][1], dependencies=["kvpool-mater"]),
        "no role kvpool-mater"),
    Mutation(
        "a drain in preStop", GROUP,
        lambda o: _pre_stop(o, "kvpool-store", "kvpool", "drain", "me"), "preStop"),
    Mutation(
        "an unmount in preStop", TCP,
        lambda o: _pre_stop(o, "kvpool-node", "umount", "/var/lib/kvpool/mnt/pool"),
        "preStop"),
    Mutation(
        "stores recreated at an update", GROUP,
        lambda o: _set(o[0]["spec"]["roles"][1]["rolloutStrategy"]["rollingUpdate"],
                       type="RecreatePod"),
        "not updated in place"),
    Mutation(
        "a request less than the limit", GROUP,
        lambda o: _set(_store(o)["resources"]["requests"], memory="1Gi"),
        "memory: request 1Gi"),
    Mutation(
        "a store larger than its limit", GROUP,
        lambda o: _set(_env(_store(o), "KVPOOL_STORE_SIZE"), value="12gb"),
        "does not fit into a limit"),
    Mutation(
        "a store on a disk", GROUP,
        lambda o: _pod(o, "kvpool-store").volumes()["store"]["emptyDir"].pop("medium"),
        "not in an emptyDir of medium Memory"),
    Mutation(
        "a volume smaller than the store", GROUP,
        lambda o: _set(_pod(o, "kvpool-store").volumes()["store"]["emptyDir"],
                       sizeLimit="10Gi"),
        "sizeLimit"),
    Mutation(
        "a store in the volume's root", GROUP,
        lambda o: _set(_env(_store(o), "KVPOOL_STORE_DIR"), value="/store"),
        "use a directory below"),
    Mutation(
        "ports with hostNetwork", TCP,
        lambda o: _set(_node(o), ports=[{"containerPort": 7072}]),
        "keep the next pod away"),
    Mutation(
        "surge without hand-over", TCP,
        lambda o: _node(o)["args"].remove("--surge"), "--surge go together"),
    Mutation(
        "addresses of the pod", TCP,
        lambda o: _set(_pod(o, "kvpool-node").spec, hostNetwork=False),
        "must belong to the host"),
    Mutation(
        "a store as root", GROUP,
        lambda o: _set(_store(o)["securityContext"], runAsUser=0, runAsNonRoot=False),
        "it runs as root"),
    Mutation(
        "variables of Services", GROUP,
        lambda o: _pod(o, "kvpool-store").spec.pop("enableServiceLinks"),
        "enableServiceLinks"),
    Mutation(
        "a volume that nobody has", GROUP,
        lambda o: _set(_store(o)["volumeMounts"][0], name="runn"), "no volume runn"),
    Mutation(
        "a policy for a port that is not there", TCP,
        lambda o: _set(
            next(x for x in o if x["kind"] == "NetworkPolicy")
            ["spec"]["ingress"][0]["ports"][0], port=7079),
        "no pod has port 7079"),
    Mutation(
        "a pod that no policy is for", GROUP,
        lambda o: _set(o[2]["spec"]["podSelector"]["matchLabels"], **{"kvpool.io/role": "stores"}),
        "kvpool-store: no network policy"),
    Mutation(
        "a policy for a store's port that is not there", GROUP,
        lambda o: _set(o[2]["spec"]["ingress"][0]["ports"][0], port=7070),
        "no pod has port 7070"),
    Mutation(
        "a claim of another name", LLMD,
        lambda o: _set(o[1]["metadata"], name="llm-d-kv-cache"), "no claim"),
    Mutation(
        "a volume outside of the mount", LLMD,
        lambda o: _set(o[0]["spec"]["hostPath"], path="/var/lib/kvpool/pool"),
        "not inside of the mount"),
    Mutation(
        "a monitor of a port that no Service has", MONITORING,
        lambda o: _set(_kind(o, "ServiceMonitor")["spec"]["endpoints"][0], port="http"),
        "nothing listens at ['http']"),
    Mutation(
        "a monitor of another port than the admin address", MONITORING,
        lambda o: _set(_kind(o, "PodMonitor")["spec"]["podMetricsEndpoints"][0]
            ["relabelings"][1], replacement="$1:7072"), "nothing listens at"),
    Mutation(
        "a monitor of pods that are not there", MONITORING,
        lambda o: _set(_kind(o, "PodMonitor")["spec"]["selector"]["matchLabels"],
            **{"kvpool.io/role": "nodes"}), "PodMonitor kvpool-node selects nothing"),
    Mutation(
        "a misspelt field of a monitor", MONITORING,
        lambda o: _rename(_kind(o, "PodMonitor")["spec"], "podMetricsEndpoints",
            "podMetricEndpoints"), "podMetricEndpoints"),
    Mutation(
        "a misspelt field of a certificate", "overlay tls",
        lambda o: _rename(next(c for c in o if c["kind"] == "Certificate"
            and "renewBefore" in c["spec"])["spec"], "renewBefore", "renewBefor"),
        "renewBefor"),
    Mutation(
        "a misspelt field of KServe", "kserve service",
        lambda o: _rename(o[0]["spec"]["kvCacheOffloading"], "evictionPolicy",
            "evictionPolcy"), "evictionPolcy"),
    Mutation(
        "a misspelt value of the chart", "stack values",
        lambda o: _rename(o[0]["servingEngineSpec"]["modelSpec"][0], "replicaCount",
            "replicaCuont"), "replicaCuont"),
]  # fmt: skip
