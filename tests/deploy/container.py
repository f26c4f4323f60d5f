"""container.py SPEC: makes a container's root filesystem in the namespaces that this
process was started in, and becomes its command. For pods.py only; root.

The root is a tmpfs with the image's /usr over this machine's (overlay), and the
volumes. Propagation is what the kubelet makes of mountPropagation.
"""

import ctypes
import json
import os
import subprocess
import sys
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
DEVICES = {
    "null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8),
    "urandom": (1, 9), "tty": (5, 0), "fuse": (10, 229),
}  # fmt: skip
PROPAGATION = {
    None: "--make-rprivate",
    "None": "--make-rprivate",
    "HostToContainer": "--make-rslave",
    "Bidirectional": "--make-rshared",
}


def mount(*words: str) -> None:
    subprocess.run(["/usr/bin/mount", *words], check=True)


def make_root(s: dict[str, Any]) -> None:
    root = s["root"]
    mount("-t", "tmpfs", "-o", "mode=0755", "root", root)
    for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run", "var", ".old"):
        os.mkdir(f"{root}/{name}")
    os.chmod(f"{root}/tmp", 0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        os.symlink(f"usr/{name}", f"{root}/{name}")
    mount(
        "-t", "overlay", "-o", f"ro,lowerdir={s['image']}/usr:/usr", "usr",
        f"{root}/usr",
    )  # fmt: skip
    # Volumes may be in there; what is made for them stays here.
    for name in (".etc", ".work"):
        os.mkdir(f"{root}/{name}")
    mount(
        "-t", "overlay", "-o",
        f"lowerdir=/etc,upperdir={root}/.etc,workdir={root}/.work", "etc",
        f"{root}/etc",
    )  # fmt: skip
    mount("--bind", s["hosts"], f"{root}/etc/hosts")


def make_devices(s: dict[str, Any]) -> None:
    dev = f"{s['root']}/dev"
    mount("-t", "tmpfs", "-o", "mode=0755", "dev", dev)
    for name, (major, minor) in DEVICES.items():
        if name == "fuse" and not s["privileged"]:
            continue
        os.mknod(f"{dev}/{name}", 0o020666, os.makedev(major, minor))
        os.chmod(f"{dev}/{name}", 0o666)
    os.mkdir(f"{dev}/shm")


def make_kernel(s: dict[str, Any]) -> None:
    root = s["root"]
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("--bind", "/sys", f"{root}/sys")
    groups = f"{root}/sys/fs/cgroup"
    mount("-t", "tmpfs", "cgroup", groups)
    os.mkdir(f"{groups}/memory")
    mount("-t", "cgroup", "-o", "memory", "memory", f"{groups}/memory")


def make_volumes(s: dict[str, Any]) -> None:
    for v in sorted(s["volumes"], key=lambda v: len(v["target"])):
        at = s["root"] + v["target"]
        os.makedirs(at, exist_ok=True)
        mount("--rbind", v["source"], at)
        mount(PROPAGATION[v["propagation"]], at)
        if v["read_only"]:
            mount("-o", "remount,bind,ro", at)


def make_folders(s: dict[str, Any]) -> None:
    """Of this machine, where they are there."""
    for folder in s["folders"]:
        os.makedirs(s["root"] + folder, exist_ok=True)
        mount("--bind", folder, s["root"] + folder)
        mount("-o", "remount,bind,ro", s["root"] + folder)


def enter(s: dict[str, Any]) -> None:
    root = s["root"].encode()
    if s["read_only_root"]:
        mount("-o", "remount,ro", s["root"])
    # The new root is a mount of its own, whose parent is private.
    if LIBC.syscall(155, root, root + b"/.old") != 0:  # pivot_root, x86-64
        raise OSError(ctypes.get_errno(), "pivot_root")
    os.chdir("/")
    # What is unmounted here must stay mounted on the host.
    mount("--make-rslave", "/.old")
    subprocess.run(["/usr/bin/umount", "-l", "/.old"], check=True)


def main() -> None:
    with open(sys.argv[1]) as f:
        s = json.load(f)
    if s["hostname"]:
        LIBC.sethostname(s["hostname"].encode(), len(s["hostname"]))
    make_root(s)
    make_devices(s)
    make_kernel(s)
    make_volumes(s)
    make_folders(s)
    enter(s)
    words = s["as"] + s["argv"]
    os.execvpe(words[0], words, s["env"])


main()
