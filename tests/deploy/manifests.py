"""The manifests of tools/deploy as Kubernetes would see them: YAML without double
keys, overlays rendered, and the pods of each object.

kustomization.yaml is rendered here because kubectl need not be there; what is
not understood is refused. Where kubectl is there, the results are compared.
"""

import copy
import dataclasses
import pathlib
from typing import Any

import yaml  # type: ignore

Object = dict[str, Any]

TOP = pathlib.Path(__file__).resolve().parents[2] / "tools" / "deploy"
RBG = TOP / "rbg" / "inference.yaml"
RBG_POLICY = TOP / "rbg" / "network-policy.yaml"
OVERLAYS = ("tcp", "rdma", "tls", "etcd")
MONITORING = TOP / "monitoring"
ENGINES = (
    TOP / "engines" / "llm-d" / "volume.yaml",
    TOP / "engines" / "kserve" / "volume.yaml",
)


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a key that is given twice, which YAML parsers silently drop."""


def _mapping(loader: Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(k) for k, _ in node.value]
    double = {k for k in keys if keys.count(k) > 1}
    if double:
        raise ValueError(f"{node.start_mark}: given twice: {double}")
    return dict(loader.construct_mapping(node, deep=True))


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(path: pathlib.Path) -> list[Object]:
    with open(path) as f:
        found = [o for o in yaml.load_all(f, Loader) if o is not None]
    if not found:
        raise ValueError(f"{path}: no objects")
    return found


# ---- kustomize ----

KEYS = {"apiVersion", "kind", "namespace", "resources", "patches", "images"}


def _patch_one(target: Any, operation: Object) -> None:
    """One operation of RFC 6902 (JSON Patch)."""
    parts = [
        p.replace("~1", "/").replace("~0", "~")
        for p in operation["path"].split("/")[1:]
    ]
    for part in parts[:-1]:
        target = target[int(part) if isinstance(target, list) else part]
    last = parts[-1]
    value = copy.deepcopy(operation["value"])
    if isinstance(target, list):
        if operation["op"] != "add" or last != "-":
            raise ValueError(f"not understood: {operation}")
        target.append(value)
    elif operation["op"] == "replace" and last not in target:
        raise ValueError(f"nothing to replace: {operation['path']}")
    elif operation["op"] in ("add", "replace"):
        target[last] = value
    else:
        raise ValueError(f"not understood: {operation}")


def _apply(patch: Object, objects: list[Object]) -> None:
    target = patch["target"]
    met = [
        o
        for o in objects
        if o["kind"] == target["kind"] and o["metadata"]["name"] == target["name"]
    ]
    if not met:
        raise ValueError(f"a patch without a target: {target}")
    for o in met:
        for operation in yaml.load(patch["patch"], Loader):
            _patch_one(o, operation)


def _images(rules: list[Object], objects: list[Object]) -> None:
    for pod in pods_of(objects):
        for c in pod.all_containers():
            for rule in rules:
                if c["image"] == rule["name"]:
                    c["image"] = f"{rule['name']}:{rule['newTag']}"


def render(folder: pathlib.Path) -> list[Object]:
    """What `kubectl kustomize` makes of the folder."""
    (k,) = load(folder / "kustomization.yaml")
    if not set(k) <= KEYS:
        raise ValueError(f"{folder}: not understood: {sorted(set(k) - KEYS)}")
    objects = []
    for name in k["resources"]:
        at = folder / name
        objects += render(at) if at.is_dir() else load(at)
    for patch in k.get("patches", []):
        _apply(patch, objects)
    _images(k.get("images", []), objects)
    for o in objects:
        if "namespace" in k and o["kind"] != "Namespace":
            o["metadata"]["namespace"] = k["namespace"]
    return objects


# ---- pods ----


@dataclasses.dataclass
class Pod:
    """A pod template and what its owner declares about it."""

    name: str  # of the role or workload
    owner: Object  # the object that has it
    template: Object
    replicas: int
    role: Object | None = None  # of a RoleBasedGroup
    dependencies: tuple[str, ...] = ()

    @property
    def spec(self) -> Object:
        found: Object = self.template["spec"]
        return found

    @property
    def labels(self) -> dict[str, str]:
        found: dict[str, str] = self.template["metadata"]["labels"]
        return found

    def containers(self) -> list[Object]:
        return list(self.spec["containers"])

    def all_containers(self) -> list[Object]:
        return list(self.spec.get("initContainers", [])) + self.containers()

    def volumes(self) -> dict[str, Object]:
        return {v["name"]: v for v in self.spec.get("volumes", [])}


def pods_of(objects: list[Object]) -> list[Pod]:
    found = []
    for o in objects:
        if o["kind"] == "RoleBasedGroup":
            for role in o["spec"]["roles"]:
                found.append(
                    Pod(
                        role["name"],
                        o,
                        role["standalonePattern"]["template"],
                        role["replicas"],
                        role,
                        tuple(role.get("dependencies", ())),
                    )
                )
        elif o["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
            spec = o["spec"]
            found.append(
                Pod(o["metadata"]["name"], o, spec["template"], spec.get("replicas", 1))
            )
    return found


def env_of(container: Object) -> dict[str, str]:
    """Values that are written there; "" for those that come from elsewhere."""
    return {e["name"]: e.get("value", "") for e in container.get("env", [])}


UNITS = {
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
}  # fmt: skip


def quantity(text: str) -> int:
    """A Kubernetes quantity of memory, in bytes."""
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def pool_size(text: str) -> int:
    """A size as the daemons read it (powers of 1024)."""
    lower = text.lower().removesuffix("ib").removesuffix("b")
    for i, unit in enumerate("kmgt", 1):
        if lower.endswith(unit):
            return int(float(lower[:-1]) * 1024**i)
    return int(lower)
