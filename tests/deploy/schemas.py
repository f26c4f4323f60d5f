"""Objects against the API's schemas, in which no field is allowed that they do not
have: data/kubernetes.json.gz (Kubernetes 1.34, from kubernetes-validate, strict)
and data/rolebasedgroup-v1alpha2.json.gz (sgl-project/rbg 993491fb, the CRD's).
Both are Apache-2.0, without descriptions. If kubernetes-validate is installed, it
is asked as well.
"""

import gzip
import json
import pathlib
from typing import Any

import jsonschema

from manifests import Object

DATA = pathlib.Path(__file__).resolve().parent / "data"


def _strict(schema: Any) -> Any:
    """No fields but those: what the API server prunes is a mistake here."""
    if isinstance(schema, list):
        return [_strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {
        k: {n: _strict(p) for n, p in v.items()} if k == "properties" else _strict(v)
        for k, v in schema.items()
    }
    if schema.get("x-kubernetes-int-or-string"):
        out.pop("anyOf", None)
        out["type"] = ["integer", "string"]
    if (
        isinstance(schema.get("properties"), dict)
        and "additionalProperties" not in schema
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        out["additionalProperties"] = False
    return out


def _read(name: str) -> Any:
    return json.loads(gzip.decompress((DATA / name).read_bytes()))


def _rbg() -> Any:
    schema = _strict(_read("rolebasedgroup-v1alpha2.json.gz"))
    schema["properties"]["metadata"] = {"type": "object"}  # the API server's own
    return schema


def _object(required: list[str], **properties: Any) -> Any:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_LABELS = {"type": "object", "additionalProperties": _TEXT}


def _monitor(endpoints: str) -> Any:
    """What monitoring/ uses of ServiceMonitor and PodMonitor, as in the definitions of
    prometheus-operator (monitoring.coreos.com/v1)."""
    relabeling = _object(
        ["action"],
        action={"enum": ["keep", "drop", "replace", "labeldrop", "labelkeep"]},
        sourceLabels=_TEXTS,
        regex=_TEXT,
        replacement=_TEXT,
        targetLabel=_TEXT,
    )
    endpoint = _object(
        [],
        port=_TEXT,
        path=_TEXT,
        interval={"type": "string", "pattern": "^[0-9]+(ms|s|m)$"},
        relabelings={"type": "array", "items": relabeling},
    )
    spec = _object(
        ["selector", endpoints],
        selector=_object(["matchLabels"], matchLabels=_LABELS),
        **{endpoints: {"type": "array", "items": endpoint, "minItems": 1}},
    )
    return _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata=_object(["name"], name=_TEXT, namespace=_TEXT, labels=_LABELS),
        spec=spec,
    )


class Schemas:
    def __init__(self) -> None:
        kube = _read("kubernetes.json.gz")
        self._known: dict[str, Any] = {
            "workloads.x-k8s.io/v1alpha2/RoleBasedGroup": _rbg(),
            "monitoring.coreos.com/v1/ServiceMonitor": _monitor("endpoints"),
            "monitoring.coreos.com/v1/PodMonitor": _monitor("podMetricsEndpoints"),
        }
        for kind, name in kube["kinds"].items():
            self._known[kind] = {"$ref": f"#/$defs/{name}", "$defs": kube["$defs"]}
        # Custom resources whose definitions are not here.
        self.unknown = {"cert-manager.io/v1/Issuer", "cert-manager.io/v1/Certificate"}

    def errors(self, o: Object) -> list[str]:
        kind = f"{o.get('apiVersion')}/{o.get('kind')}"
        if kind in self.unknown:
            return []
        if kind not in self._known:
            return [f"{kind}: no schema for this kind"]
        validator = jsonschema.Draft7Validator(self._known[kind])
        name = f"{o['kind']} {o.get('metadata', {}).get('name')}"
        return [
            f"{name}: {'.'.join(map(str, e.absolute_path))}: {e.message[:200]}"
            for e in validator.iter_errors(o)
        ]


def validate_elsewhere(objects: list[Object]) -> list[str] | None:
    """By kubernetes-validate; None: it is not installed."""
    try:
        import kubernetes_validate
    except ImportError:
        return None
    found = []
    for o in objects:
        group = o["apiVersion"].split("/")[0]
        if group.endswith(("x-k8s.io", "cert-manager.io", "coreos.com")):
            continue
        try:
            kubernetes_validate.validate(o, "1.34", strict=True)
        except kubernetes_validate.ValidationError as e:
            found.append(f"{o['kind']} {o['metadata']['name']}: {e.message}")
    return found
