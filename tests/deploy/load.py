"""Conversations with two engines, as tests/bench/multiturn holds them; each turn goes
to the other engine, so what is loaded came through the pool."""

import json
import os
import pathlib
import threading
import urllib.error
import urllib.request
from typing import Any

from multiturn.workload import Conversation, Workload

BLOCK = 64  # tokens, of engine.py


def ask(url: str, prompt: list[int]) -> dict[str, int]:
    request = urllib.request.Request(
        f"{url}/turn", json.dumps({"prompt": prompt}).encode()
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, int] = json.load(answer)
    except urllib.error.HTTPError as e:
        raise RuntimeError(f"{url}: {e.read().decode()}") from None
    return found


class Talks:
    """Rounds of conversations; counts what was loaded and what could have been."""

    def __init__(self, urls: list[str], seed: int = 1) -> None:
        self.urls = urls
        self.work = Workload(
            conversations=4, turns=4, first=1024, later=256, answer=64, seed=seed
        )
        self.rounds = 0
        self.turns = 0
        self.loaded = self.could = 0
        self.prompts: list[list[int]] = []  # the last one of each conversation

    def round(self) -> None:
        for i in range(self.work.conversations):
            talk = Conversation(self.work, self.rounds, i)
            before = 0
            for turn in range(self.work.turns):
                prompt = talk.next_prompt()
                at = self.urls[self.work.server(i, turn, len(self.urls))]
                answer = ask(at, prompt)
                self.turns += 1
                self.could += before
                self.loaded += answer["loaded"]
                before = len(prompt) // BLOCK
                talk.answered([7] * self.work.answer)
            self.prompts.append(prompt)
        self.rounds += 1

    def lost(self) -> int:
        """Blocks of all conversations that are not in the pool any more."""
        lost = 0
        for i, prompt in enumerate(self.prompts):
            answer = ask(self.urls[i % len(self.urls)], prompt)
            lost += answer["computed"]
        return lost


class Load(threading.Thread):
    """Rounds of conversations until it is stopped. What fails there fails all."""

    def __init__(self, talks: Talks) -> None:
        super().__init__()
        self.talks = talks
        self.error: BaseException | None = None
        self._end = threading.Event()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                self.talks.round()
        except BaseException as e:
            self.error = e

    def __enter__(self) -> "Load":
        self.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._end.set()
        self.join()
        if self.error and not failure[0]:
            raise RuntimeError(f"under load: {self.error!r}") from self.error


def fill(mount: pathlib.Path) -> None:
    """More than all stores have room for: what is old makes room."""
    size = os.statvfs(mount).f_blocks * os.statvfs(mount).f_frsize
    content = os.urandom(4 << 20)
    folder = mount / "fill"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY)
    for i in range(size * 5 // 4 // len(content)):
        (folder / str(i)).write_bytes(content)
        os.fsync(fd)
    os.close(fd)
