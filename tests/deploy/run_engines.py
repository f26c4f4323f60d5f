"""run_engines.py DIR PROGRAMS group|nodes ENVIRONMENT MODEL: conversations with two
servers of vLLM itself (installed.py), from the very YAML (pods.py).

group: the roles engine and engine-contributing of tools/deploy/rbg, on its pool.
nodes: llm-d's engine on two nodes of overlays/tcp, by llm-d's claim.

Each turn goes to the other server, as in tests/bench/multiturn. A third one, without
a pool, is asked the same: the answers must be equal.
"""

import copy
import json
import pathlib
import sys
import time
from collections.abc import Callable

from installed import Installed
from manifests import Pod
from multiturn.engines import VLLM, Sources
from multiturn.serve import BLOCK
from multiturn.workload import Conversation, Workload
from pods import RunningPod, wait_until
from rules import start_order
from run_group import Group
from run_nodes import Nodes, llm_d_engine

WORK = Workload(conversations=2, turns=3, first=512, later=128, answer=8)
STORED_S = 60
PAUSE_S = 0.5
ENGINES = ("engine", "engine-contributing")


def blocks_of_prompt(talk: Conversation) -> int:
    """The last one's whole blocks."""
    return max(0, len(talk.history) - WORK.answer) // BLOCK


def without_pool(pod: Pod) -> Pod:
    alone = copy.deepcopy(pod)
    alone.name += "-alone"
    alone.spec["containers"][:] = [
        {**c, "args": []} for c in pod.containers() if c["command"][0] == "vllm"
    ]
    return alone


class Talks:
    """keys: how many objects are in the pool."""

    def __init__(
        self, engines: list[RunningPod], alone: RunningPod, keys: Callable[[], int]
    ) -> None:
        self.servers = [VLLM([f"http://{e.ip}:8000"]) for e in engines]
        self.alone = VLLM([f"http://{alone.ip}:8000"])
        self.keys = keys
        self.turns = 0
        self.from_pool = [0] * len(engines)  # blocks, by server

    def _ask(self, talk: Conversation) -> Sources:
        prompt = talk.next_prompt()
        at = WORK.server(talk.number, talk.turn, len(self.servers))
        before = self.servers[at].sources()
        answer = self.servers[at].says(0, "", prompt, WORK.answer).tokens
        found = self.servers[at].sources() - before
        right = self.alone.says(0, "", prompt, WORK.answer).tokens
        assert answer == right, f"server {at} answers {answer}, without a pool {right}"
        assert len(answer) == WORK.answer, answer
        talk.answered(answer)
        self.turns += 1
        self.from_pool[at] += found.outside // BLOCK
        print(f"   conversation {talk.number}, turn {talk.turn}, server {at}: {found}")
        return found

    def round(self) -> None:
        talks = [Conversation(WORK, 0, i) for i in range(WORK.conversations)]
        first = self.keys()
        for turn in range(WORK.turns):
            stored = 0
            for talk in talks:
                known = blocks_of_prompt(talk)
                found = self._ask(talk)
                stored += blocks_of_prompt(talk)
                # In the second turn this server has computed none of it.
                if turn == 0:
                    assert found.outside == 0, f"in the first turn: {found}"
                if turn == 1:
                    assert found.outside >= known * BLOCK > 0, f"not {known}: {found}"
            wait_until(
                f"{stored} objects more than {first}",
                STORED_S,
                lambda n=first + stored: self.keys() >= n,  # type: ignore[misc]
            )
            time.sleep(PAUSE_S)  # until the other server's node knows of them
        alone = self.alone.sources()
        assert alone.outside == 0, f"without a pool: {alone}"
        print(f"   {self.turns} turns, blocks from the pool by server: {self.from_pool}")
        assert all(self.from_pool)


def keys_of(master: RunningPod) -> int:
    words = ["kvpool", "status", "--json"]
    rc, text = master.containers[0].exec(words, 60)
    if rc:
        raise RuntimeError(f"{words}: {text}")
    return int(json.loads(text)["keys"])


def end(pods: list[RunningPod]) -> None:
    for pod in pods:
        assert pod.is_ready(), f"{pod.name} is not ready"
        pod.kill()
        pod.forget()


def test_group(group: Group) -> None:
    group.roles["engine-alone"] = without_pool(group.roles["engine"])
    for role in start_order([r for n, r in group.roles.items() if n != "engine-alone"]):
        if role.name not in ENGINES:
            print(f"== role {role.name}: {role.replicas}")
            group.start_role(role)
    print(f"== vLLM: {', '.join(ENGINES)}, and one without a pool")
    pods = [group.start_one(name) for name in (*ENGINES, "engine-alone")]
    for pod in pods:
        pod.wait_ready()
    print("== conversations")
    Talks(pods[:2], pods[2], lambda: keys_of(group.of("kvpool-master")[0])).round()
    end(pods)


def test_nodes(nodes: Nodes) -> None:
    print("== the master, and a daemon on each node")
    nodes.start_master()
    (master,) = nodes.cluster.running
    for host in nodes.hosts:
        daemon = nodes.make_daemon(host)
        daemon.start()
        daemon.wait_ready()
    print("== vLLM on both nodes, by llm-d's claim, and one without a pool")
    pod = llm_d_engine()
    started = [(pod, f"llm-d-{h.name}", h) for h in nodes.hosts]
    started.append((without_pool(pod), "alone", nodes.hosts[0]))
    pods = [nodes.cluster.start(*s) for s in started]
    for p in pods:
        p.wait_ready()
    print("== conversations")
    Talks(pods[:2], pods[2], lambda: keys_of(master)).round()
    end(pods)


def main() -> None:
    top, programs, which, environment, model = sys.argv[1:]
    engine = Installed(pathlib.Path(environment), pathlib.Path(model))
    make, test = {"group": (Group, test_group), "nodes": (Nodes, test_nodes)}[which]
    tested = make(pathlib.Path(top), pathlib.Path(programs), engine)
    try:
        test(tested)  # type: ignore[operator]
        tested.cluster.stop()
    finally:
        tested.cluster.close()


if __name__ == "__main__":
    main()
