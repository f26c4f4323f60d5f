"""What differs between engines: how a prompt is sent, and where it is reported
what of it was computed."""

import dataclasses
import re
import threading
import time
from typing import Any, Protocol

from multiturn.client import Answer, Refused, ask, stream


@dataclasses.dataclass
class Sources:
    """Where the tokens of prompts came from."""

    computed: int = 0
    own: int = 0  # the engine's own prefix cache
    host: int = 0  # vLLM's CPU tier
    outside: int = 0  # the pool, or what is in its place

    def __sub__(self, other: "Sources") -> "Sources":
        names = [f.name for f in dataclasses.fields(self)]
        return Sources(*(getattr(self, n) - getattr(other, n) for n in names))


class Engine(Protocol):
    def says(self, server: int, name: str, prompt: list[int], count: int) -> Answer:
        """At temperature 0. name: of the conversation."""

    def sources(self) -> Sources:
        """Of all prompts so far, of all servers."""


class VLLM:
    """Its OpenAI server. The model needs no tokenizer (--skip-tokenizer-init)."""

    _SOURCE = re.compile(
        r'^vllm:prompt_tokens_(?:cached_)?by_source_total'
        r'\{.*source="(\w+)".*\} (\S+)$',
        re.M,
    )
    # What vLLM calls them; all tiers of storage are "disk" to it.
    _FIELDS = {
        "local_compute": "computed",
        "device": "own",
        "host": "host",
        "disk": "outside",
        "p2p": "outside",
        "external_unspecified": "outside",
    }

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        models = [self._model(url) for url in urls]
        if len(set(models)) != 1:
            raise ValueError(f"servers of different models: {models}")
        self.model = models[0]

    def _model(self, url: str) -> str:
        import json

        return json.loads(ask(url + "/v1/models"))["data"][0]["id"]

    def says(self, server: int, name: str, prompt: list[int], count: int) -> Answer:
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": count,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
        return stream(self.urls[server] + "/v1/completions", body, self._tokens)

    @staticmethod
    def _tokens(event: dict[str, Any]) -> list[int]:
        choices = event.get("choices")
        return (choices[0].get("token_ids") or []) if choices else []

    def sources(self) -> Sources:
        total = Sources()
        for url in self.urls:
            page = ask(url + "/metrics").decode()
            for source, value in self._SOURCE.findall(page):
                if field := self._FIELDS.get(source):
                    count = getattr(total, field) + round(float(value))
                    setattr(total, field, count)
        return total


class Llama:
    """llama-server. With slots (it was started with --slot-save-path), a
    conversation's state is restored before a turn and saved after it, as by a
    router; restoring is part of the time to the first token. Without, the server
    takes the slot that has most of the prompt."""

    def __init__(self, urls: list[str], slots: int) -> None:
        """slots: of each server; 0: none are saved."""
        self.urls = urls
        self._total = Sources()
        self._lock = threading.Lock()
        self._saves = slots > 0
        self._free = [list(range(slots)) for _ in urls]
        self._freed = threading.Condition(self._lock)

    def says(self, server: int, name: str, prompt: list[int], count: int) -> Answer:
        begin = time.monotonic()
        body = {
            "prompt": prompt,
            "n_predict": count,
            "temperature": 0,
            "cache_prompt": True,
            "ignore_eos": True,
            "return_tokens": True,
            "stream": True,
        }
        url = self.urls[server] + "/completion"
        if not self._saves:
            answer = stream(url, body, self._tokens, begin)
            self._count(answer, False)
            return answer
        slot = self._take(server)
        try:
            restored = self._slot(server, slot, "restore", name)
            asked: dict[str, object] = {**body, "id_slot": slot}
            answer = stream(url, asked, self._tokens, begin)
            self._count(answer, restored)
            self._slot(server, slot, "save", name)
            return answer
        finally:
            self._give(server, slot)

    @staticmethod
    def _tokens(event: dict[str, Any]) -> list[int]:
        return [] if event.get("stop") else event.get("tokens") or []

    def _slot(self, server: int, slot: int, action: str, name: str) -> bool:
        url = f"{self.urls[server]}/slots/{slot}?action={action}"
        try:
            ask(url, {"filename": name + ".bin"})
        except Refused:
            return False  # a miss
        return True

    def _count(self, answer: Answer, restored: bool) -> None:
        timings = answer.last.get("timings", {})
        cached = timings.get("cache_n", 0)
        with self._lock:
            self._total.computed += timings.get("prompt_n", 0)
            if restored:
                self._total.outside += cached
            else:
                self._total.own += cached

    def _take(self, server: int) -> int:
        with self._freed:
            self._freed.wait_for(lambda: self._free[server])
            return self._free[server].pop(0)

    def _give(self, server: int, slot: int) -> None:
        with self._freed:
            self._free[server].append(slot)
            self._freed.notify_all()

    def sources(self) -> Sources:
        with self._lock:
            return dataclasses.replace(self._total)
