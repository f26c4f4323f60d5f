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
    return _kind_of(spec)


def _kind_of(spec: Any) -> Any:
    return _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion=_TEXT,
        kind=_TEXT,
        metadata=_object(["name"], name=_TEXT, namespace=_TEXT, labels=_LABELS),
        spec=spec,
    )


_DURATION = {"type": "string", "pattern": "^[0-9]+(h|m|s)$"}
_COUNT = {"type": "integer", "minimum": 1}


def _issuer() -> Any:
    """What overlays/tls uses of Issuer, as in cert-manager's API v1."""
    ca = _object(["secretName"], secretName=_TEXT)
    return _kind_of(
        {**_object([], selfSigned=_object([]), ca=ca), "minProperties": 1}
    )


def _certificate() -> Any:
    key = _object(
        ["algorithm", "size"],
        algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
        size=_COUNT,
        rotationPolicy={"enum": ["Never", "Always"]},
    )
    return _kind_of(
        _object(
            ["secretName", "issuerRef"],
            isCA={"type": "boolean"},
            commonName=_TEXT,
            secretName=_TEXT,
            duration=_DURATION,
            renewBefore=_DURATION,
            privateKey=key,
            usages=_TEXTS,
            uris=_TEXTS,
            dnsNames=_TEXTS,
            issuerRef=_object(["name"], name=_TEXT, kind={"enum": ["Issuer"]}),
        )
    )


def _llm_service() -> Any:
    """What engines/kserve uses of LLMInferenceService (serving.kserve.io/v1alpha2)."""
    ref = _object(["name"], name=_TEXT, path=_TEXT)
    tier = _object(["fileSystem"], fileSystem=_object(["pvc"], pvc=_object(["ref"], ref=ref)))
    offloading = _object(
        [],
        cpu=_TEXT,
        evictionPolicy={"enum": ["lru", "arc"]},
        secondary={"type": "array", "items": tier, "minItems": 1},
    )
    return _kind_of(
        _object(
            ["model"],
            model=_object(["uri"], uri=_TEXT, name=_TEXT),
            replicas=_COUNT,
            kvCacheOffloading=offloading,
        )
    )


def _stack_values() -> Any:
    """What engines/vllm-production-stack sets of that chart's values."""
    host = _object(["path"], path=_TEXT, type={"enum": ["Directory"]})
    mount = _object(
        ["name", "mountPath"], name=_TEXT, mountPath=_TEXT, mountPropagation=_TEXT
    )
    model = _object(
        ["name", "repository", "tag", "modelURL", "replicaCount"],
        name=_TEXT,
        repository=_TEXT,
        tag=_TEXT,
        modelURL=_TEXT,
        replicaCount=_COUNT,
        requestCPU=_COUNT,
        requestMemory=_TEXT,
        requestGPU=_COUNT,
        extraVolumes={
            "type": "array",
            "items": _object(["name", "hostPath"], name=_TEXT, hostPath=host),
        },
        extraVolumeMounts={"type": "array", "items": mount},
        env={
            "type": "array",
            "items": _object(["name", "value"], name=_TEXT, value=_TEXT),
        },
        vllmConfig=_object(["extraArgs"], extraArgs=_TEXTS),
    )
    return _object(
        ["apiVersion", "kind", "servingEngineSpec"],
        apiVersion=_TEXT,
        kind=_TEXT,
        servingEngineSpec=_object(["modelSpec"], modelSpec={"type": "array", "items": model}),
    )


# Groups that kubernetes-validate does not know.
OTHERS = ("x-k8s.io", "cert-manager.io", "coreos.com", "kserve.io")


class Schemas:
    def __init__(self) -> None:
        kube = _read("kubernetes.json.gz")
        self._known: dict[str, Any] = {
            "workloads.x-k8s.io/v1alpha2/RoleBasedGroup": _rbg(),
            "monitoring.coreos.com/v1/ServiceMonitor": _monitor("endpoints"),
            "monitoring.coreos.com/v1/PodMonitor": _monitor("podMetricsEndpoints"),
            "cert-manager.io/v1/Issuer": _issuer(),
            "cert-manager.io/v1/Certificate": _certificate(),
            "serving.kserve.io/v1alpha2/LLMInferenceService": _llm_service(),
            "values/vllm-production-stack": _stack_values(),
        }
        for kind, name in kube["kinds"].items():
            self._known[kind] = {"$ref": f"#/$defs/{name}", "$defs": kube["$defs"]}

    def errors(self, o: Object) -> list[str]:
        kind = f"{o.get('apiVersion')}/{o.get('kind')}"
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
        if group == "values" or group.endswith(OTHERS):
            continue
        try:
            kubernetes_validate.validate(o, "1.34", strict=True)
        except kubernetes_validate.ValidationError as e:
            found.append(f"{o['kind']} {o['metadata']['name']}: {e.message}")
    return found
