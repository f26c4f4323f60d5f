"""Pods as a kubelet would start them from their YAML, on this machine: each has a
network namespace (or its host's), each container mount, PID, UTS and cgroup
namespaces, a root of its own, its user and capabilities, its volumes, its
memory limit in the pod's cgroup (v1); probes and hooks run in it.

What differs from a cluster: there is no image, no scheduler and no controller; the
runner (run.py) updates and scales. All addresses are in one bridged network; names
of Services are in /etc/hosts. Sizes of memory are divided by `scale`, and limits
get EXTRA on top, as programs do not shrink.

The process must be alone in mount and PID namespaces of its own, which take all of
that with them when it ends (it_deploy_*.sh); only cgroups are removed by close().
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from manifests import Object, Pod, pool_size, quantity

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
GROUPS = pathlib.Path("/sys/fs/cgroup/memory")
EXTRA = 160 << 20
IMAGE_USER = 10001  # of tools/deploy/image; others' images are taken to be root's
DEFAULT_CAPABILITIES = (
    "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid",
    "setpcap", "net_bind_service", "net_raw", "sys_chroot", "mknod",
    "audit_write", "setfcap",
)  # fmt: skip
POLL_S = 0.1


def run(*words: str, **options: Any) -> str:
    done = subprocess.run(
        words, check=True, text=True, stdout=subprocess.PIPE, **options
    )
    return str(done.stdout)


def wait_until(what: str, seconds: float, done: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(POLL_S)


class Host:
    """A node: its network namespace and the part of its disk that pods see."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.name = name
        self.netns, self.ip = cluster.make_network(name)
        self.disk = cluster.top / "hosts" / name
        self.disk.mkdir(parents=True)
        # The kubelet's mounts and those of containers propagate to each other.
        run("mount", "--bind", str(self.disk), str(self.disk))
        run("mount", "--make-rshared", str(self.disk))

    def path(self, path: str) -> pathlib.Path:
        return self.disk / path.lstrip("/")


class StandIn:
    """What runs as `vllm` in a container: engine.py. (installed.py: vLLM itself.)"""

    memory = 0  # on top of a container's limit
    ready_s = 60.0
    folders: tuple[str, ...] = ()  # of this machine, that it sees

    def argv(self, words: list[str]) -> list[str]:
        return ["/usr/bin/python3", "/usr/lib/kvpool-test/engine.py", *words]

    def env(self, given: dict[str, str]) -> dict[str, str]:
        return given


class Cluster:
    def __init__(
        self,
        top: pathlib.Path,
        programs: pathlib.Path,
        scale: int,
        engine: StandIn | None = None,
    ) -> None:
        self.top, self.scale = top, scale
        self.engine = engine or StandIn()
        self.image = top / "image"
        self.hosts_file = top / "hosts.txt"
        self.hosts_file.write_text("127.0.0.1 localhost\n")
        self._names: dict[str, str] = {}
        self._networks = 0
        self.running: list[RunningPod] = []
        self.claims: dict[str, str] = {}  # name -> path on each host
        self.secrets: dict[str, pathlib.Path] = {}  # name -> directory of its files
        self.cgroup = GROUPS / f"kvdeploy-{os.environ['KVDEPLOY_ID']}"
        self.cgroup.mkdir()
        os.makedirs("/run/netns", exist_ok=True)  # iproute2 makes it when first used
        run("mount", "-t", "tmpfs", "netns", "/run/netns")
        run("ip", "netns", "add", "fabric")
        # Without an address of its own, a bridge takes the lowest of its ports', which
        # changes when pods come and go: then nothing reaches it until ARP entries expire.
        run(
            "ip", "-n", "fabric", "link", "add", "name", "br0",
            "address", "02:00:00:00:00:fe", "type", "bridge",
        )  # fmt: skip
        run("ip", "-n", "fabric", "addr", "add", "10.78.0.1/16", "dev", "br0")
        for link in ("br0", "lo"):
            run("ip", "-n", "fabric", "link", "set", link, "up")
        self._enter_network("fabric")
        self._make_image(programs)

    @staticmethod
    def _enter_network(netns: str) -> None:
        """This thread, and those that it starts."""
        fd = os.open(f"/run/netns/{netns}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(fd, 0):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)

    def _make_image(self, programs: pathlib.Path) -> None:
        """The files of the image (tools/deploy/image), which lie over /usr."""
        bin_ = self.image / "usr" / "bin"
        engine = self.image / "usr" / "share" / "kvpool" / "engine"
        test = self.image / "usr" / "lib" / "kvpool-test"
        for folder in (bin_, engine / "lib", test):
            folder.mkdir(parents=True)
        for name in ("kvpoold", "kvpool-master", "kvpool"):
            shutil.copy(programs / name, bin_ / name)
        shutil.copy(programs / "libkvpool.so.0", engine / "lib")
        shutil.copytree(TOP / "tools" / "python", engine / "python")
        shutil.copy(HERE / "engine.py", test)

    def make_network(self, name: str) -> tuple[str, str]:
        self._networks += 1
        n = self._networks
        netns, ip = f"n{n}", f"10.78.1.{n}"
        run("ip", "netns", "add", netns)
        run(
            "ip", "-n", "fabric", "link", "add", "name", netns, "type", "veth", "peer",
            "name", "eth0", "netns", netns,
        )  # fmt: skip
        run("ip", "-n", "fabric", "link", "set", netns, "master", "br0", "up")
        run("ip", "-n", netns, "addr", "add", f"{ip}/16", "dev", "eth0")
        for link in ("eth0", "lo"):
            run("ip", "-n", netns, "link", "set", link, "up")
        return netns, ip

    def name_service(self, name: str, ip: str) -> None:
        """In all containers at once: they have this very file."""
        self._names[name] = ip
        lines = [f"{i} {n}\n" for n, i in self._names.items()]
        with open(self.hosts_file, "r+") as f:
            f.truncate(0)
            f.write("127.0.0.1 localhost\n" + "".join(lines))

    def start(self, pod: Pod, name: str, host: Host | None = None) -> "RunningPod":
        running = RunningPod(self, pod, name, host)
        self.running.append(running)
        if not running.host_network:  # as in the hosts file that the kubelet writes
            self.name_service(name, running.ip)
        running.start()
        return running

    def limit(self, text: str) -> int:
        return quantity(text) // self.scale + EXTRA

    def stop(self) -> None:
        """All pods, the last one first."""
        for pod in list(reversed(self.running)):
            pod.stop()

    def close(self) -> None:
        for pod in reversed(self.running):
            pod.kill()
        for folder, _, _ in os.walk(self.cgroup, topdown=False):
            wait_until(f"rmdir {folder}", 10, lambda at=folder: _gone(at))  # type: ignore


def _gone(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True


def is_engine(container: Object) -> bool:
    return bool(container["command"][0] == "vllm")


@dataclasses.dataclass
class RunningContainer:
    pod: "RunningPod"
    spec: Object
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    cgroup: pathlib.Path = pathlib.Path()

    # ---- what the manifest says ----

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def engine(self) -> StandIn | None:
        """If it is an engine's container."""
        return self.pod.cluster.engine if is_engine(self.spec) else None

    def env(self) -> dict[str, str]:
        found = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
        for e in self.spec.get("env", []):
            value = e["value"] if "value" in e else self._reference(e["valueFrom"])
            found[e["name"]] = self._scaled(e["name"], self._expand(value, found))
        return self.engine.env(found) if self.engine else found

    def _reference(self, source: Object) -> str:
        if "resourceFieldRef" in source:
            ref = source["resourceFieldRef"]
            assert ref["resource"] == "limits.memory", ref
            return str(self.pod.limit_of(ref["containerName"]))
        pod = self.pod
        return {
            "status.podIP": pod.ip,
            "status.hostIP": pod.host.ip if pod.host else pod.ip,
            "metadata.name": pod.name,
            "spec.nodeName": pod.host.name if pod.host else "",
        }[source["fieldRef"]["fieldPath"]]

    def _scaled(self, name: str, value: str) -> str:
        if name == "KVPOOL_STORE_SIZE":
            return str(pool_size(value) // self.pod.cluster.scale)
        return value

    @staticmethod
    def _expand(text: str, env: dict[str, str]) -> str:
        return re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), text)

    def argv(self) -> list[str]:
        env = self.env()
        given = self.spec["command"] + self.spec.get("args", [])
        words = [self._expand(w, env) for w in given]
        return self.engine.argv(words) if self.engine else words

    def _context(self) -> Object:
        return {
            **self.pod.pod.spec.get("securityContext", {}),
            **self.spec.get("securityContext", {}),
        }

    @property
    def privileged(self) -> bool:
        return bool(self._context().get("privileged"))

    def _as(self) -> list[str]:
        """setpriv(1) with user and capabilities."""
        c = self._context()
        image = self.spec.get("image", "").rpartition("/")[2].partition(":")[0]
        default = IMAGE_USER if image == "kvpool" else 0
        user, group = c.get("runAsUser", default), c.get("runAsGroup", default)
        if self.privileged and user == 0:
            return []
        caps = c.get("capabilities", {})
        kept = () if "ALL" in caps.get("drop", []) else DEFAULT_CAPABILITIES
        kept += tuple(a.lower() for a in caps.get("add", []))
        sets = ",".join(["-all", *(f"+{k}" for k in sorted(set(kept)))])
        words = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}"]
        words.append(f"--groups={c['fsGroup']}" if "fsGroup" in c else "--clear-groups")
        words += [f"--bounding-set={sets}", f"--inh-caps={sets}"]
        if not c.get("allowPrivilegeEscalation", True):
            words.append("--no-new-privs")
        return words

    # ---- its life ----

    def start(self) -> None:
        self.starts += 1
        top = self.pod.top / f"{self.name}-{self.starts}"
        (top / "root").mkdir(parents=True)
        self.cgroup = self.pod.cgroup / f"{self.name}-{self.starts}"
        self.cgroup.mkdir()
        limit = self.pod.limit_of(self.name)
        if limit:
            (self.cgroup / "memory.limit_in_bytes").write_text(str(limit))
        spec = {
            "root": str(top / "root"),
            "image": str(self.pod.cluster.image),
            "hosts": str(self.pod.cluster.hosts_file),
            "hostname": "" if self.pod.host_network else self.pod.name,
            "privileged": self.privileged,
            "read_only_root": self._context().get("readOnlyRootFilesystem", False),
            "volumes": [
                {
                    "source": str(self.pod.sub_path(m)),
                    "target": m["mountPath"],
                    "propagation": m.get("mountPropagation"),
                    "read_only": m.get("readOnly", False),
                }
                for m in self.spec.get("volumeMounts", [])
            ],
            "folders": self.engine.folders if self.engine else (),
            "as": self._as(),
            "argv": self.argv(),
            "env": self.env(),
        }
        (top / "spec.json").write_text(json.dumps(spec))
        unshare = ["/usr/bin/unshare", "--mount", "--cgroup", "--uts", "--ipc"]
        unshare += ["--propagation", "unchanged"]
        if not self.pod.pod.spec.get("hostPID"):
            unshare += ["--pid", "--fork", "--kill-child"]
        log = os.open(
            self.pod.cluster.top / f"{self.pod.name}-{self.name}.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        )
        self.process = subprocess.Popen(
            [
                *self._in_cgroup(),
                "/usr/bin/nsenter",
                f"--net=/run/netns/{self.pod.netns}",
                *unshare,
                sys.executable,
                str(HERE / "container.py"),
                str(top / "spec.json"),
            ],  # fmt: skip
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        os.close(log)

    def _in_cgroup(self) -> list[str]:
        return [
            "/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"',
            str(self.cgroup),
        ]  # fmt: skip

    def pid(self) -> int:
        """Of its first process, here. 0: it does not run."""
        if not self.process or self.process.poll() is not None:
            return 0
        pid = self.process.pid
        if self.pod.pod.spec.get("hostPID"):
            return pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children") as f:
                children = f.read().split()
        except OSError:
            children = []
        return int(children[0]) if children else 0

    def command_runs(self) -> bool:
        """Its command, not yet container.py?"""
        try:
            line = pathlib.Path(f"/proc/{self.pid()}/cmdline").read_bytes()
        except OSError:
            return False
        return bool(line) and b"container.py" not in line

    def exec(self, words: list[str], seconds: float) -> tuple[int, str]:
        """As a probe or hook: status and output."""
        pid = self.pid()
        if not pid or not self.command_runs():
            return -1, "it does not run"
        spaces = ["--mount", "--net", "--uts", "--pid", "--cgroup", "--ipc"]
        try:
            done = subprocess.run(
                [
                    *self._in_cgroup(), "/usr/bin/nsenter", f"--target={pid}",
                    *spaces, *self._as(), *words,
                ],  # fmt: skip
                env=self.env(), capture_output=True, text=True, timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, f"{words}: not within {seconds} s"
        return done.returncode, done.stdout + done.stderr

    def probe(self, name: str) -> bool:
        probe = self.spec.get(name)
        if not probe:
            return bool(self.pid())
        if "exec" in probe:
            return (
                self.exec(probe["exec"]["command"], probe.get("timeoutSeconds", 1))[0]
                == 0
            )
        get = probe["httpGet"]
        url = f"http://{self.pod.ip}:{get['port']}{get['path']}"
        done = subprocess.run(
            ["/usr/bin/nsenter", f"--net=/run/netns/{self.pod.netns}", "curl", "-sf",
             "--max-time", "5", "-o", "/dev/null", url]
        )  # fmt: skip
        return done.returncode == 0

    def wait_started(self) -> None:
        hook = self.spec.get("lifecycle", {}).get("postStart")
        if hook:
            wait_until("the command", 10, self.command_runs)
            rc, text = self.exec(hook["exec"]["command"], 90)
            if rc:
                raise RuntimeError(f"{self.pod.name}/{self.name}: postStart: {text}")
        probe = self.spec.get("startupProbe", {})
        patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        self._wait("startupProbe", patience)

    def wait_ready(self) -> None:
        self._wait("readinessProbe", self.engine.ready_s if self.engine else 60)

    def _wait(self, probe: str, seconds: float) -> None:
        def done() -> bool:
            if self.process and self.process.poll() is not None:
                raise RuntimeError(
                    f"{self.pod.name}/{self.name} ended with {self.process.poll()}"
                )
            return self.probe(probe)

        wait_until(f"{self.pod.name}/{self.name}: {probe}", seconds, done)

    def signal(self, number: int) -> None:
        pid = self.pid()
        if pid:
            os.kill(pid, number)

    def stop(self) -> int:
        """As the kubelet stops a container; its status."""
        hook = self.spec.get("lifecycle", {}).get("preStop")
        if hook:
            self.exec(hook["exec"]["command"], 30)
        self.signal(signal.SIGTERM)
        assert self.process
        return self.process.wait(
            self.pod.pod.spec.get("terminationGracePeriodSeconds", 30)
        )

    def pids(self) -> list[int]:
        try:
            return [int(p) for p in (self.cgroup / "cgroup.procs").read_text().split()]
        except FileNotFoundError:
            return []

    def kill(self) -> None:
        """All of its processes, as if the machine had no memory left."""
        while self.pids():
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_S)
        if self.process:
            self.process.wait()

    def stop_and_check(self) -> None:
        rc = self.stop()
        # The keeper's guard notices its end, and ends as well.
        until = time.monotonic() + 5
        while self.pids() and time.monotonic() < until:
            time.sleep(POLL_S)
        if rc or self.pids():
            raise RuntimeError(
                f"{self.pod.name}/{self.name} ended with {rc}, left {self.pids()}"
            )


class RunningPod:
    def __init__(
        self, cluster: Cluster, pod: Pod, name: str, host: Host | None
    ) -> None:
        self.cluster, self.pod, self.name, self.host = cluster, pod, name, host
        self.host_network = bool(pod.spec.get("hostNetwork"))
        if self.host_network:
            assert host
            self.netns, self.ip = host.netns, host.ip
        else:
            self.netns, self.ip = cluster.make_network(name)
        self.top = cluster.top / "pods" / name
        self.top.mkdir(parents=True)
        self.cgroup = cluster.cgroup / name
        self.cgroup.mkdir()
        limits = [self.limit_of(c["name"]) for c in pod.containers()]
        self.limit = sum(limits) if all(limits) else 0
        if self.limit:
            (self.cgroup / "memory.limit_in_bytes").write_text(str(self.limit))
        for v in pod.volumes().values():
            self._make_volume(v)
        self.containers = [RunningContainer(self, c) for c in pod.containers()]

    def limit_of(self, container: str) -> int:
        (c,) = (c for c in self.pod.all_containers() if c["name"] == container)
        text = c.get("resources", {}).get("limits", {}).get("memory")
        more = self.cluster.engine.memory if is_engine(c) else 0
        return self.cluster.limit(text) + more if text else 0

    def volume(self, name: str) -> pathlib.Path:
        v = self.pod.volumes()[name]
        if "hostPath" in v:
            assert self.host
            return self.host.path(v["hostPath"]["path"])
        if "persistentVolumeClaim" in v:
            assert self.host
            claim = v["persistentVolumeClaim"]["claimName"]
            return self.host.path(self.cluster.claims[claim])
        return self.top / "volumes" / name

    def sub_path(self, mount: Object) -> pathlib.Path:
        """What a container mounts of a volume. The kubelet makes it, as root and with
        the volume's mode, where it is not there."""
        volume = self.volume(mount["name"])
        at = volume / mount.get("subPath", "")
        if not at.exists():
            at.mkdir()
            at.chmod(volume.stat().st_mode & 0o7777)
        return at

    def _make_volume(self, v: Object) -> None:
        at = self.volume(v["name"])
        if "emptyDir" in v:
            at.mkdir(parents=True)
            if v["emptyDir"].get("medium") == "Memory":
                size = quantity(v["emptyDir"]["sizeLimit"]) // self.cluster.scale
                run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at))
            group = self.pod.spec.get("securityContext", {}).get("fsGroup")
            if group:
                os.chown(at, 0, group)
            os.chmod(at, 0o2777 if group else 0o777)
        elif "secret" in v:
            self._make_secret(v["secret"], at)
        elif v.get("hostPath", {}).get("type") == "DirectoryOrCreate":
            at.mkdir(parents=True, exist_ok=True)
        elif not at.is_dir():
            raise FileNotFoundError(f"{self.name}: {at} is no directory yet")

    def _make_secret(self, secret: Object, at: pathlib.Path) -> None:
        """Root's files, which the pod's fsGroup may read."""
        group = self.pod.spec.get("securityContext", {}).get("fsGroup", 0)
        mode = secret.get("defaultMode", 0o644) | (0o440 if group else 0)
        at.mkdir(parents=True)
        for source in self.cluster.secrets[secret["secretName"]].iterdir():
            shutil.copy(source, at)
            os.chown(at / source.name, 0, group)
            os.chmod(at / source.name, mode)

    def start_init(self) -> None:
        for spec in self.pod.spec.get("initContainers", []):
            c = RunningContainer(self, spec)
            c.start()
            assert c.process
            if c.process.wait(60):
                raise RuntimeError(f"{self.name}/{c.name} ended with an error")

    def start(self) -> None:
        self.start_init()
        for c in self.containers:
            c.start()

    def wait_ready(self) -> None:
        for c in self.containers:
            c.wait_started()
        for c in self.containers:
            c.wait_ready()

    def is_ready(self) -> bool:
        return all(c.probe("readinessProbe") for c in self.containers)

    def is_alive(self) -> bool:
        return all(c.probe("livenessProbe") for c in self.containers)

    def container(self, name: str) -> RunningContainer:
        return next(c for c in self.containers if c.name == name)

    def stop(self) -> None:
        """The pod is deleted, with its volumes."""
        for c in self.containers:
            c.stop_and_check()
        self.forget()

    def kill(self) -> None:
        for c in self.containers:
            c.kill()

    def forget(self) -> None:
        self.cluster.running.remove(self)
        for v in self.pod.volumes().values():
            if v.get("emptyDir", {}).get("medium") == "Memory":
                run("umount", "-l", str(self.volume(v["name"])))

    # ---- memory ----

    def memory(self) -> tuple[int, int, int]:
        """Peak and limit of the pod, and how often the kernel killed for it."""
        peak = int((self.cgroup / "memory.max_usage_in_bytes").read_text())
        kills = 0
        for at in [self.cgroup, *self.cgroup.iterdir()]:
            if at.is_dir():
                text = (at / "memory.oom_control").read_text()
                kills += int(re.search(r"^oom_kill (\d+)$", text, re.M)[1])  # type: ignore[index]
        return peak, self.limit, kills
