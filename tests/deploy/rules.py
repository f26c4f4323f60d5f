"""What the schemas do not see. Each rule yields what is wrong, as a sentence."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from manifests import Object, Pod, env_of, pods_of, pool_size, quantity

PROGRAMS = ("kvpoold", "kvpool-master", "kvpool")
MIB = 1 << 20
GIB = 1 << 30


class Programs:
    """The options of the programs, from their --help."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[str, tuple[set[str], set[str]]] = {}

    def options(self, *words: str) -> tuple[set[str], set[str]]:
        """(--options, variables) of a program, or of a subcommand."""
        key = " ".join(words)
        if key not in self._known:
            command = [f"{self._folder}/{words[0]}", *words[1:], "--help"]
            text = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout
            found = (
                set(re.findall(r"^  (--[a-z-]+)", text, re.M)),
                set(re.findall(r"\[(KVPOOL_[A-Z_]+)", text)),
            )
            if not found[0]:
                raise ValueError(f"{command}: no options")
            self._known[key] = found
        return self._known[key]


def _ours(c: Object) -> str | None:
    """The program of this project that the container runs."""
    command = c.get("command", [])
    return command[0] if command and command[0] in PROGRAMS else None


def _commands(c: Object) -> Iterator[tuple[str, list[str]]]:
    """All commands that a container runs besides its own, by where they stand."""
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        if "exec" in c.get(probe, {}):
            yield probe, c[probe]["exec"]["command"]
    for hook, handler in c.get("lifecycle", {}).items():
        if "exec" in handler:
            yield hook, handler["exec"]["command"]


def _mounts(c: Object) -> dict[str, Object]:
    return {m["mountPath"]: m for m in c.get("volumeMounts", [])}


def _below(path: str, mounts: dict[str, Object]) -> Object | None:
    """The volume mount that has the path."""
    best = ""
    for at in mounts:
        if (path + "/").startswith(at.rstrip("/") + "/") and len(at) > len(best):
            best = at
    return mounts.get(best)


def _port(text: str) -> str:
    return text.rsplit(":", 1)[-1]


# ---- rules of a container ----


def options_exist(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    program = _ours(c)
    if not program:
        return
    if program == "kvpool":
        words = c["command"][1:] + c.get("args", [])
        options, _ = programs.options("kvpool", words[0])
        variables = {e for e in env_of(c) if e.startswith("KVPOOL_")}
    else:
        words = c["command"][1:] + c.get("args", [])
        options, known = programs.options(program)
        variables = {e for e in env_of(c) if e.startswith("KVPOOL_")} - known
    for name in sorted(variables):
        yield f"{name} is no option of {program}"
    for word in words:
        if word.startswith("--") and word.split("=")[0] not in options:
            yield f"{word} is no option of {program}"
    if program != "kvpool" and "--foreground" not in words:
        yield f"{program} without --foreground leaves its container"


def references_resolve(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    """$(NAME) is of a variable above; in probes and hooks it is not expanded."""
    seen: set[str] = set()
    for e in c.get("env", []):
        for name in re.findall(r"\$\((\w+)\)", e.get("value", "")):
            if name not in seen:
                yield f"{e['name']}: $({name}) is not defined above it"
        if e["name"] in seen:
            yield f"{e['name']} is given twice"
        seen.add(e["name"])
    for word in c.get("command", []) + c.get("args", []):
        for name in re.findall(r"\$\((\w+)\)", word):
            if name not in seen:
                yield f"command: $({name}) is not defined"
    for where, words in _commands(c):
        if "$(" in " ".join(words):
            yield f"{where}: variables are not expanded there"


def probes_listen(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    declared = {p["containerPort"] for p in c.get("ports", [])}
    env = env_of(c)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        for how in ("httpGet", "tcpSocket"):
            port = c.get(probe, {}).get(how, {}).get("port")
            if port is not None and port not in declared:
                yield f"{probe}: nobody listens on port {port}"
    for where, words in _commands(c):
        if words[0] not in PROGRAMS:
            continue
        options, _ = programs.options(words[0], words[1])
        for i, word in enumerate(words):
            if word.startswith("--") and word.split("=")[0] not in options:
                yield f"{where}: {word} is no option of {words[0]} {words[1]}"
            if word == "--admin" and _port(words[i + 1]) != _port(
                env.get("KVPOOL_ADMIN", "")
            ):
                yield f"{where}: the daemon does not listen on {words[i + 1]}"
        if words[1] == "healthz" and "KVPOOL_ADMIN" not in env:
            yield f"{where}: KVPOOL_ADMIN does not say where the daemon listens"
    if _ours(c) in ("kvpoold", "kvpool-master"):
        if "readinessProbe" not in c or "startupProbe" not in c:
            yield "a daemon without startupProbe and readinessProbe"
        if declared and not pod.spec.get("hostNetwork"):
            wanted = {int(_port(env[e])) for e in ("KVPOOL_LISTEN", "KVPOOL_ADMIN")}
            if wanted != declared:
                yield f"ports {sorted(declared)}, but it listens on {sorted(wanted)}"


def propagation_is_privileged(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    privileged = c.get("securityContext", {}).get("privileged", False)
    two_way = False
    for m in c.get("volumeMounts", []):
        if m.get("mountPropagation") == "Bidirectional":
            two_way = True
            if not privileged:
                yield f"{m['mountPath']}: Bidirectional needs privileged"
            if "hostPath" not in pod.volumes().get(m["name"], {}):
                yield f"{m['mountPath']}: Bidirectional is for a hostPath"
    if privileged and not two_way:
        yield "it is privileged, and need not be"


def mount_has_a_parent(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    path = env_of(c).get("KVPOOL_MOUNT")
    if not path:
        return
    mount = _below(path, _mounts(c))
    if not mount or mount.get("mountPropagation") != "Bidirectional":
        yield f"{path} is not in a Bidirectional volume: no engine would see it"
        return
    if mount["mountPath"].rstrip("/") == path.rstrip("/"):
        yield f"{path} is a volume itself; bind its parent, or a restart fails"
    volume = pod.volumes()[mount["name"]]["hostPath"]
    if volume["path"] != mount["mountPath"]:
        yield f"{volume['path']} is {mount['mountPath']} in the container: one name"
    makes = [
        i
        for i in pod.spec.get("initContainers", [])
        if i["command"] == ["kvpool", "mountpoint", path]
        and "LINUX_IMMUTABLE"
        in i.get("securityContext", {}).get("capabilities", {}).get("add", [])
    ]
    if not makes:
        yield f"no init container makes {path} immutable"


def hooks_take_nothing_away(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    """preStop runs at updates, too."""
    for where, words in _commands(c):
        text = shlex.join(words)
        if where == "preStop" and re.search(r"umount|fusermount|drain|down", text):
            yield f"preStop: {text}: it would be lost at every update"


def memory_is_bounded(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    r = c.get("resources", {})
    limit = r.get("limits", {}).get("memory")
    if not limit or limit != r.get("requests", {}).get("memory"):
        yield f"memory: request {r.get('requests', {}).get('memory')}, limit {limit}"
    size = env_of(c).get("KVPOOL_STORE_SIZE")
    if not size or not limit:
        return
    bytes_ = pool_size(size)
    wanted = bytes_ + headroom(bytes_)
    allowed = quantity(limit) - max(quantity(limit) // 20, 64 * MIB)
    if allowed < wanted:
        yield f"a store of {size} does not fit into a limit of {limit}"
    refs = [
        e
        for e in c["env"]
        if e["name"] == "KVPOOL_MEMORY_LIMIT"
        and e.get("valueFrom", {}).get("resourceFieldRef", {})
        == {"containerName": c["name"], "resource": "limits.memory"}
    ]
    if not refs:
        yield "KVPOOL_MEMORY_LIMIT is not its limits.memory"
    yield from _store_volume(pod, c, wanted, quantity(limit))


def headroom(size: int) -> int:
    """The least that a store of this size has (pool/store/dir.c)."""
    return max(min(size // 16, GIB), 16 * MIB)


def _store_volume(pod: Pod, c: Object, wanted: int, limit: int) -> Iterator[str]:
    env = env_of(c)
    path = env.get("KVPOOL_STORE_DIR") or env["KVPOOL_RUN_DIR"]
    mount = _below(path, _mounts(c))
    volume: Any = pod.volumes().get(mount["name"], {}) if mount else {}
    if "hostPath" in volume:
        return
    volume = volume.get("emptyDir", {})
    if volume.get("medium") != "Memory":
        yield f"{path} is not in an emptyDir of medium Memory"
    elif not wanted <= quantity(volume.get("sizeLimit", "0")) <= limit:
        yield (
            f"{path}: sizeLimit {volume.get('sizeLimit')} is less than store and "
            "headroom, or more than the memory"
        )
    if mount and mount["mountPath"] == path:
        yield f"{path}: others may write to a volume's root; use a directory below"


def is_unprivileged(pod: Pod, c: Object, programs: Programs) -> Iterator[str]:
    """All containers of ours but those that mount."""
    if not c["image"].startswith("kvpool") or pod.owner["kind"] == "DaemonSet":
        return
    context = {**pod.spec.get("securityContext", {}), **c.get("securityContext", {})}
    if not context.get("runAsNonRoot") or not context.get("runAsUser"):
        yield "it runs as root"
    if context.get("allowPrivilegeEscalation", True):
        yield "it may gain privileges"
    if context.get("capabilities", {}) != {"drop": ["ALL"]}:
        yield "it keeps capabilities"
    if not context.get("readOnlyRootFilesystem"):
        yield "its root filesystem may be written"


CONTAINER_RULES: list[Callable[[Pod, Object, Programs], Iterator[str]]] = [
    options_exist,
    references_resolve,
    probes_listen,
    propagation_is_privileged,
    mount_has_a_parent,
    hooks_take_nothing_away,
    memory_is_bounded,
    is_unprivileged,
]

# ---- rules of pods and groups ----


def _pod_rules(pod: Pod) -> Iterator[str]:
    volumes = pod.volumes()
    used = set()
    for c in pod.all_containers():
        for m in c.get("volumeMounts", []):
            used.add(m["name"])
            if m["name"] not in volumes:
                yield f"{c['name']}: there is no volume {m['name']}"
    for name in sorted(set(volumes) - used):
        yield f"volume {name} is not used"
    if pod.spec.get("enableServiceLinks", True):
        yield "enableServiceLinks: variables of Services would be read as options"
    spec = pod.owner["spec"]
    if "selector" in spec and not (
        spec["selector"]["matchLabels"].items() <= pod.labels.items()
    ):
        yield "its selector does not match its labels"
    if pod.owner["kind"] == "DaemonSet":
        yield from _surge_rules(pod)


def _surge_rules(pod: Pod) -> Iterator[str]:
    update = pod.owner["spec"]["updateStrategy"].get("rollingUpdate", {})
    surges = bool(update.get("maxSurge"))
    for c in pod.containers():
        words = c.get("args", [])
        if surges and pod.spec.get("hostNetwork") and c.get("ports"):
            yield f"{c['name']}: with hostNetwork, ports keep the next pod away"
        if _ours(c) == "kvpoold" and surges != ("--surge" in words):
            yield f"{c['name']}: maxSurge and --surge go together"
    if surges and not (pod.spec.get("hostNetwork") and pod.spec.get("hostPID")):
        yield "maxSurge: what is handed over must belong to the host"
    if surges and update.get("maxUnavailable") != 0:
        yield "maxSurge with maxUnavailable: the old pod might end first"
    if pod.spec.get("priorityClassName") != "system-node-critical":
        yield "not system-node-critical: engines would lose it first"


def _role_rules(pod: Pod, names: set[str]) -> Iterator[str]:
    for name in pod.dependencies:
        if name not in names:
            yield f"there is no role {name} to depend on"
    rolling = (pod.role or {}).get("rolloutStrategy", {}).get("rollingUpdate", {})
    for c in pod.containers():
        if _ours(c) == "kvpoold" and pod.name == "kvpool-store":
            if rolling.get("type") != "InPlaceIfPossible":
                yield "stores are not updated in place: they would lose all"
            if rolling.get("maxUnavailable") != 1:
                yield "several stores would be away at once"
            if "--joined" not in c["startupProbe"]["exec"]["command"]:
                yield "the next store would be updated before this one has joined"


def start_order(pods: list[Pod]) -> list[Pod]:
    """Those that others depend on first. ValueError: there is a cycle."""
    order: list[Pod] = []
    left = list(pods)
    while left:
        done = {p.name for p in order}
        can = [p for p in left if set(p.dependencies) <= done]
        if not can:
            raise ValueError(f"dependencies: a cycle of {[p.name for p in left]}")
        order += can
        left = [p for p in left if p not in can]
    return order


def _volume_rules(objects: list[Object]) -> Iterator[str]:
    claims = {
        (o["metadata"]["namespace"], o["metadata"]["name"]): o
        for o in objects
        if o["kind"] == "PersistentVolumeClaim"
    }
    for o in objects:
        if o["kind"] != "PersistentVolume":
            continue
        spec = o["spec"]
        ref = (spec["claimRef"]["namespace"], spec["claimRef"]["name"])
        claim = claims.get(ref, {}).get("spec", {})
        if claim.get("volumeName") != o["metadata"]["name"]:
            yield f"volume {o['metadata']['name']}: no claim {ref} is for it"
        if spec.get("storageClassName") != "" or claim.get("storageClassName") != "":
            yield 'storageClassName is not "": a default class would be used'
        if "ReadWriteMany" not in spec["accessModes"]:
            yield "not ReadWriteMany"
        if spec.get("hostPath", {}).get("type") != "Directory":
            yield "not a hostPath of type Directory: it would be made on the disk"


def volumes_are_in_the_mount(objects: list[Object], nodes: list[Object]) -> list[str]:
    """hostPath volumes of engines lie inside of the mount of the DaemonSet."""
    mounts = [
        env_of(c)["KVPOOL_MOUNT"]
        for p in pods_of(nodes)
        for c in p.containers()
        if "KVPOOL_MOUNT" in env_of(c)
    ]
    return [
        f"{o['spec']['hostPath']['path']} is not inside of the mount {mounts}"
        for o in objects
        if o["kind"] == "PersistentVolume"
        and not any(o["spec"]["hostPath"]["path"].startswith(m + "/") for m in mounts)
    ]


def _pods_without_policy(objects: list[Object], pods: list[Pod]) -> Iterator[str]:
    """Pods with an address of their own, to which anybody may connect."""
    policies = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy"]
    for p in pods:
        chosen = [s["podSelector"]["matchLabels"].items() for s in policies]
        if not p.spec.get("hostNetwork") and not any(
            c <= p.labels.items() for c in chosen
        ):
            yield f"{p.name}: no network policy is for it"


def _policy_rules(objects: list[Object]) -> Iterator[str]:
    pods = pods_of(objects)
    yield from _pods_without_policy(objects, pods)
    for o in objects:
        if o["kind"] not in ("NetworkPolicy", "Service"):
            continue
        spec = o["spec"]
        select = spec["selector"] if o["kind"] == "Service" else spec["podSelector"]
        labels = select if o["kind"] == "Service" else select["matchLabels"]
        met = [p for p in pods if labels.items() <= p.labels.items()]
        if not met:
            yield f"{o['kind']} {o['metadata']['name']} selects nothing"
        ports = {
            q["containerPort"] for p in met for c in p.containers()
            for q in c.get("ports", [])
        }  # fmt: skip
        # (One without ports is for all of them.)
        rules = [r for i in spec.get("ingress", []) for r in i.get("ports", [])]
        for r in rules or spec.get("ports", []):
            if r["port"] not in ports:
                at = f"{o['kind']} {o['metadata']['name']}"
                yield f"{at}: no pod has port {r['port']}"


def _monitor_rules(objects: list[Object]) -> Iterator[str]:
    """A monitor selects what is there, and asks where it listens."""
    for o in objects:
        if o["kind"] not in ("ServiceMonitor", "PodMonitor"):
            continue
        at = f"{o['kind']} {o['metadata']['name']}"
        labels = o["spec"]["selector"]["matchLabels"].items()
        if o["kind"] == "ServiceMonitor":
            met = [
                s for s in objects
                if s["kind"] == "Service" and labels <= s["metadata"]["labels"].items()
            ]  # fmt: skip
            ports = {q["name"] for s in met for q in s["spec"]["ports"]}
            wrong = {e["port"] for e in o["spec"]["endpoints"]} - ports
        else:
            pods = [p for p in pods_of(objects) if labels <= p.labels.items()]
            met = [p.name for p in pods]
            found = [r for e in o["spec"]["podMetricsEndpoints"] for r in e["relabelings"]]
            names = {r["regex"] for r in found if r["action"] == "keep"}
            listens = {
                _port(v) for p in pods for c in p.containers() if c["name"] in names
                for n, v in env_of(c).items() if n == "KVPOOL_ADMIN"
            }  # fmt: skip
            wrong = {
                _port(r["replacement"]) for r in found
                if r.get("targetLabel") == "__address__"
            } - listens  # fmt: skip
        if not met:
            yield f"{at} selects nothing"
        elif wrong:
            yield f"{at}: nothing listens at {sorted(wrong)}"


def check(objects: list[Object], programs: Programs) -> list[str]:
    """What is wrong with objects that belong together."""
    found = []
    pods = pods_of(objects)
    names = {p.name for p in pods}
    for pod in pods:
        for c in pod.all_containers():
            for rule in CONTAINER_RULES:
                for text in rule(pod, c, programs):
                    found.append(f"{pod.name}/{c['name']}: {text}")
        found += [f"{pod.name}: {t}" for t in _pod_rules(pod)]
        if pod.role:
            found += [f"{pod.name}: {t}" for t in _role_rules(pod, names)]
    try:
        start_order([p for p in pods if set(p.dependencies) <= names])
    except ValueError as e:
        found.append(str(e))
    for rules in (_volume_rules, _policy_rules, _monitor_rules):
        found += list(rules(objects))
    return found
