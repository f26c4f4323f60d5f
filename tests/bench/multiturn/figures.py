"""The arithmetic of the tables."""

import dataclasses
import json
import math
import statistics
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

Line = dict[str, Any]


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of some turns of one variant. Times in milliseconds."""

    requests_s: float
    input_s: float  # tokens of prompts
    output_s: float
    ttft: tuple[float, ...]
    tpot: tuple[float, ...]  # of each request
    itl: tuple[float, ...]
    computed: int  # tokens of prompts
    own: int
    host: int
    outside: int

    @property
    def prompts(self) -> int:
        return self.computed + self.own + self.host + self.outside


def figures(lines: Iterable[Line]) -> Figures:
    requests: list[Line] = []
    turns: list[Line] = []
    for line in lines:
        (requests if line["kind"] == "request" else turns).append(line)
    seconds = sum(t["seconds"] for t in turns) or math.nan

    def total(source: str) -> int:
        return sum(t["sources"][source] for t in turns)

    return Figures(
        requests_s=len(requests) / seconds,
        input_s=sum(r["prompt"] for r in requests) / seconds,
        output_s=sum(len(r["tokens"]) for r in requests) / seconds,
        ttft=tuple(1e3 * r["ttft"] for r in requests),
        tpot=tuple(_tpot(r) for r in requests if len(r["tokens"]) > 1),
        itl=tuple(1e3 * gap for r in requests for gap in r["gaps"]),
        computed=total("computed"),
        own=total("own"),
        host=total("host"),
        outside=total("outside"),
    )


def _tpot(r: Line) -> float:
    return 1e3 * (r["latency"] - r["ttft"]) / (len(r["tokens"]) - 1)


# Of the tables' columns; others come after these.
ORDER = ("none", "cpu", "mount", "adapter", "tmpfs", "disk", "mooncake")


class Results:
    """Of one engine: all lines."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        names = dict.fromkeys(line["variant"] for line in lines)
        self.variants = [v for v in ORDER if v in names]
        self.variants += [v for v in names if v not in ORDER]
        self.turns = 1 + max(line["turn"] for line in lines)

    def of(
        self, variant: str, turns: Iterable[int], rounds: Container[int] | None = None
    ) -> Figures:
        """rounds: None is all."""
        wanted = set(turns)
        return figures(
            line
            for line in self.lines
            if line["variant"] == variant
            and line["turn"] in wanted
            and (rounds is None or line["round"] in rounds)
        )

    def rounds(self, variant: str) -> set[int]:
        return {line["round"] for line in self.lines if line["variant"] == variant}

    def both(self, variant: str, base: str) -> set[int]:
        """Rounds that both had: measured side by side."""
        return self.rounds(variant) & self.rounds(base)

    def ratios(
        self,
        variant: str,
        base: str,
        turns: Iterable[int],
        value: Callable[[Figures], float],
    ) -> list[float]:
        """Of the two in each round that both had, in order of size."""
        turns = list(turns)
        return sorted(
            value(self.of(variant, turns, [r])) / value(self.of(base, turns, [r]))
            for r in self.both(variant, base)
        )

    def others(self, variant: str, base: str) -> list[Line]:
        """Requests whose answers are not the base's."""
        answers = {_which(r): r["tokens"] for r in self._requests(base)}
        return [
            r
            for r in self._requests(variant)
            if r["tokens"] != answers.get(_which(r), r["tokens"])
        ]

    def _requests(self, variant: str) -> list[Line]:
        return [
            line
            for line in self.lines
            if line["kind"] == "request" and line["variant"] == variant
        ]


def _which(r: Line) -> tuple[int, int, int]:
    return r["round"], r["conversation"], r["turn"]


def load(paths: Iterable[str]) -> dict[str, Results]:
    """By engine."""
    lines: dict[str, list[Line]] = {}
    for path in paths:
        with open(path) as f:
            for text in f:
                line = json.loads(text)
                lines.setdefault(line["engine"], []).append(line)
    return {engine: Results(of) for engine, of in lines.items()}
