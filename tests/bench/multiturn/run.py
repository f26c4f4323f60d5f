"""Conversations are held with the servers of one variant; what was measured is
added to a file, a line of JSON for each request and each turn."""

import dataclasses
import json
import threading
import time
from typing import Any, TextIO

from multiturn.engines import Engine
from multiturn.workload import Conversation, Workload


class Run:
    """A round: all its conversations, from the first turn to the last."""

    def __init__(
        self,
        engine: Engine,
        servers: int,
        workload: Workload,
        *,
        names: dict[str, Any],  # of the run, in each line
        round_: int,
        pause: float,  # seconds between turns
        out: TextIO,
    ) -> None:
        self.engine = engine
        self.servers = servers
        self.workload = workload
        self.names = {**names, "round": round_}
        self.round = round_
        self.pause = pause
        self.out = out
        self.lock = threading.Lock()
        self.errors: list[str] = []

    def run(self) -> None:
        talks = [
            Conversation(self.workload, self.round, i)
            for i in range(self.workload.conversations)
        ]
        for turn in range(self.workload.turns):
            if turn:
                time.sleep(self.pause)
            self._turn(turn, talks)

    def _turn(self, turn: int, talks: list[Conversation]) -> None:
        before = self.engine.sources()
        begin = time.monotonic()
        threads = [threading.Thread(target=self._ask, args=(talk,)) for talk in talks]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if self.errors:
            raise RuntimeError(self.errors[0])
        seconds = time.monotonic() - begin
        sources = self.engine.sources() - before
        self._write(
            "turn", turn=turn, seconds=seconds, sources=dataclasses.asdict(sources)
        )
        print(
            f"{self.names['engine']} {self.names['variant']:9} round {self.round + 1}"
            f" turn {turn + 1}: {seconds:6.2f} s, tokens computed {sources.computed},"
            f" own {sources.own}, CPU tier {sources.host},"
            f" outside {sources.outside}",
            flush=True,
        )

    def _ask(self, talk: Conversation) -> None:
        try:
            self._request(talk)
        except Exception as e:
            self.errors.append(f"conversation {talk.number}: {type(e).__name__}: {e}")

    def _request(self, talk: Conversation) -> None:
        prompt = talk.next_prompt()
        server = self.workload.server(talk.number, talk.turn, self.servers)
        name = f"r{self.round}c{talk.number}"
        answer = self.engine.says(server, name, prompt, self.workload.answer)
        if len(answer.tokens) != self.workload.answer:
            raise ValueError(f"{len(answer.tokens)} tokens, not {self.workload.answer}")
        talk.answered(answer.tokens)
        self._write(
            "request",
            turn=talk.turn,
            conversation=talk.number,
            prompt=len(prompt),
            ttft=answer.ttft,
            latency=answer.latency,
            gaps=answer.gaps,
            tokens=answer.tokens,
        )

    def _write(self, kind: str, **values: Any) -> None:
        with self.lock:
            json.dump({"kind": kind, **self.names, **values}, self.out)
            self.out.write("\n")
            self.out.flush()
