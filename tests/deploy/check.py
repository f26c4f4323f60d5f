"""check.py PROGRAMS: the manifests of tools/deploy against schemas and rules; then
each of the mistakes in mutations.py must be found.

PROGRAMS: the directory with the programs, for the names of their options.
"""

import json
import re
import shutil
import subprocess
import sys

import yaml  # type: ignore

from manifests import (
    ENGINES,
    MONITORING,
    OVERLAYS,
    RBG,
    RBG_POLICY,
    TOP,
    Object,
    env_of,
    load,
    pods_of,
    render,
)
from mutations import MUTATIONS
from rules import Programs, check, volumes_are_in_the_mount
from schemas import Schemas, validate_elsewhere


def sets() -> dict[str, list[Object]]:
    """Objects that belong together, by name."""
    found = {f"overlay {o}": render(TOP / "overlays" / o) for o in OVERLAYS}
    found["monitoring"] = render(TOP / "overlays" / "tcp") + render(MONITORING)
    found["rbg"] = load(RBG) + load(RBG_POLICY)
    for path in ENGINES:
        found[f"engine {path.parent.name}"] = load(path)
    found["kserve service"] = load(TOP / "engines" / "kserve" / "service.yaml")
    (values,) = load(TOP / "engines" / "vllm-production-stack" / "values.yaml")
    found["stack values"] = [
        {"apiVersion": "values", "kind": "vllm-production-stack", **values}
    ]
    return found


def findings(
    name: str, objects: list[Object], schemas: Schemas, programs: Programs
) -> list[str]:
    bad = [e for o in objects for e in schemas.errors(o)]
    if bad:  # rules rely on the shape
        return bad
    bad = check(objects, programs)
    if name.startswith("engine"):
        bad += volumes_are_in_the_mount(objects, render(TOP / "base"))
    return bad


def by_name(objects: list[Object]) -> list[Object]:
    return sorted(objects, key=lambda o: (o["kind"], o["metadata"]["name"]))


def compare_kustomize(name: str, objects: list[Object]) -> list[str]:
    text = subprocess.run(
        ["kubectl", "kustomize", str(TOP / "overlays" / name)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    theirs = by_name([o for o in yaml.safe_load_all(text) if o])
    same = json.dumps(theirs, sort_keys=True) == json.dumps(
        by_name(objects), sort_keys=True
    )
    return [] if same else [f"{name}: kubectl kustomize makes something else of it"]


def engines_fit() -> list[str]:
    """Names and directories that must be the same."""
    bad = []
    (service,) = load(TOP / "engines" / "kserve" / "service.yaml")
    _, claim = load(TOP / "engines" / "kserve" / "volume.yaml")
    (tier,) = service["spec"]["kvCacheOffloading"]["secondary"]
    if tier["fileSystem"]["pvc"]["ref"]["name"] != claim["metadata"]["name"]:
        bad.append("kserve: its claim is not that of volume.yaml")
    if service["metadata"]["namespace"] != claim["metadata"]["namespace"]:
        bad.append("kserve: its claim is in another namespace")
    (values,) = load(TOP / "engines" / "vllm-production-stack" / "values.yaml")
    (model,) = values["servingEngineSpec"]["modelSpec"]
    config = json.loads(model["vllmConfig"]["extraArgs"][1])
    (tier,) = config["kv_connector_extra_config"]["secondary_tiers"]
    (mount,), (volume,) = model["extraVolumeMounts"], model["extraVolumes"]
    on_host = tier["root_dir"].replace(mount["mountPath"], volume["hostPath"]["path"])
    bad += [
        f"production-stack: {on_host} is not below {c['KVPOOL_MOUNT']}"
        for pod in pods_of(render(TOP / "base"))
        for c in map(env_of, pod.containers())
        if "KVPOOL_MOUNT" in c and not on_host.startswith(c["KVPOOL_MOUNT"] + "/")
    ]
    if mount.get("mountPropagation") != "HostToContainer":
        bad.append("production-stack: a mount that is made later would not be seen")
    return bad


def names_in_readme(folder: str) -> list[str]:
    """The table of variables in the README is what kvpoold says; and how many mistakes
    are made here."""
    text = (TOP / "README.md").read_text()
    rows = re.findall(r"^\| `(MOONCAKE_\w+)` \| (?:`(KVPOOL_\w+)`|none) \|", text, re.M)
    bad = [] if len(rows) >= 7 else [f"README.md: {len(rows)} variables in its table"]
    if f" {len(MUTATIONS)} mistakes," not in text:
        bad.append(f"README.md: not {len(MUTATIONS)} mistakes")
    for theirs, ours in rows:
        errors = subprocess.run(
            [f"{folder}/kvpoold", "--foreground"],
            env={theirs: "x"},
            capture_output=True,
            text=True,
        ).stderr
        wanted = f"the same as {ours} or" if ours else f"{theirs} has no effect"
        if wanted not in errors:
            bad.append(f"README.md: {theirs}: {ours or 'none'}, but kvpoold: {errors}")
    return bad


def main() -> int:
    programs, schemas = Programs(sys.argv[1]), Schemas()
    bad: list[str] = []
    every = sets()
    for name, objects in every.items():
        bad += [f"{name}: {f}" for f in findings(name, objects, schemas, programs)]
        elsewhere = validate_elsewhere(objects)
        bad += [f"{name}: kubernetes-validate: {f}" for f in elsewhere or []]
    if elsewhere is None:
        print("kubernetes-validate is not installed: only the schemas kept here")
    if shutil.which("kubectl"):
        for o in OVERLAYS:
            bad += compare_kustomize(o, every[f"overlay {o}"])
    else:
        print("no kubectl here: rendered overlays are not compared with its own")
    print(f"{sum(map(len, every.values()))} objects checked, {len(bad)} findings")
    bad += names_in_readme(sys.argv[1]) + engines_fit()
    # (They change what is right: a field that is misspelt already is not there.)
    made = [] if bad else MUTATIONS
    for m in made:
        name, objects = m.applied(every)
        met = [f for f in findings(name, objects, schemas, programs) if m.expect in f]
        if not met:
            bad.append(f"not found: {m.what} (in {name})")
    print(f"{len(made)} mistakes made on purpose")
    for text in bad:
        print(f"FOUND {text}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
