"""Tables of what was measured, in the forms in which others published theirs:

    turns    KEP-74's (SGLang with Mooncake: without, with, change in %) and LMCache
             PR #934's (factors), for the first turn and for the later ones
    again    PR #934's: all prompts once more, at once, at another server
    serving  PR #912's: what the stores cost while there is nothing to be found
"""

import math
from collections.abc import Callable, Sequence

from multiturn.figures import Figures, Results, load, mean, percentile

SHAPES = ("turns", "again", "serving")
PEERS = ("cpu", "tmpfs", "disk", "mooncake")  # beside the pool: not judged
Value = Callable[[Figures], float]


def _mean_ttft(f: Figures) -> float:
    return mean(f.ttft)


def _mean_itl(f: Figures) -> float:
    return mean(f.itl)


def _requests_s(f: Figures) -> float:
    return f.requests_s


_ROWS: list[tuple[str, Value, str]] = [
    ("mean TTFT, ms", _mean_ttft, ".0f"),
    ("median TTFT, ms", lambda f: percentile(f.ttft, 50), ".0f"),
    ("p99 TTFT, ms", lambda f: percentile(f.ttft, 99), ".0f"),
    ("mean ITL, ms", _mean_itl, ".1f"),
    ("p99 ITL, ms", lambda f: percentile(f.itl, 99), ".1f"),
    ("requests/s", _requests_s, ".2f"),
    ("prompt tokens/s", lambda f: f.input_s, ".0f"),
    ("output tokens/s", lambda f: f.output_s, ".1f"),
]


def change(value: float, base: float) -> str:
    """In percent."""
    if math.isnan(value) or math.isnan(base) or not base:
        return "-"
    return f"{100 * (value / base - 1):+.0f} %"


def _compared(results: Results, turns: Sequence[int], base: str) -> None:
    """KEP-74's: a row for each figure; changes are those within the rounds that
    both had."""
    of = {v: results.of(v, turns) for v in results.variants}
    others = [v for v in results.variants if v != base]
    sides = {v: _sides(results, v, turns, base) for v in others}
    print(f"{'':17}{base:>9}" + "".join(f"{v:>10}{'':8}" for v in others).rstrip())
    for name, value, form in _ROWS:
        start = value(of[base])
        cells = "".join(
            f"{value(of[v]):10{form}}{change(*map(value, sides[v])):>8}"
            for v in others
        )
        print(f"{name:17}{start:9{form}}{cells}")
    for name, count in (
        ("from outside", lambda f: f.outside),
        ("from CPU tier", lambda f: f.host),
        ("own cache", lambda f: f.own),
    ):
        shares = {v: 100 * count(f) / max(1, f.prompts) for v, f in of.items()}
        cells = "".join(f"{shares[v]:8.0f} %{'':8}" for v in others)
        print(f"{name:17}{shares[base]:7.0f} %{cells.rstrip()}")


def _sides(
    results: Results, variant: str, turns: Sequence[int], base: str
) -> tuple[Figures, Figures]:
    both = results.both(variant, base)
    return results.of(variant, turns, both), results.of(base, turns, both)


def _by_turn(results: Results) -> None:
    print(f"{'mean TTFT, ms':17}" + "".join(f"{v:>12}" for v in results.variants))
    for turn in range(results.turns):
        cells = "".join(
            f"{_mean_ttft(results.of(v, [turn])):12.0f}" for v in results.variants
        )
        print(f"  turn {turn + 1:<10}{cells}")


def _spread(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    middle = percentile(ratios, 50)
    return f"{middle:.3f}" + (
        f" ({ratios[0]:.3f}-{ratios[-1]:.3f})" if len(ratios) > 1 else ""
    )


class Verdicts:
    """What is aimed at, and whether it was reached: by the median of rounds."""

    def __init__(self, results: Results, base: str) -> None:
        self.results = results
        self.base = base

    def say(
        self,
        variant: str,
        what: str,
        turns: Sequence[int],
        value: Value,
        aim: float,
        more: bool = False,
    ) -> None:
        ratios = self.results.ratios(variant, self.base, turns, value)
        middle = percentile(ratios, 50)
        good = middle >= aim if more else middle <= aim
        sign = ">=" if more else "<="
        verdict = "ok" if good else "MISSED"
        judged = f"aim {sign} {aim:5.4g}  {verdict}" if variant not in PEERS else ""
        print(f"  {variant:9} {what:28} {_spread(ratios):19} {judged}".rstrip())


def _tokens(results: Results, base: str) -> bool:
    """Are all answers the same, whatever they were computed from?"""
    good = True
    for v in results.variants:
        others = results.others(v, base)
        if others:
            good = False
            first = others[0]
            print(
                f"WRONG: {len(others)} other answers with {v}, such as conversation"
                f" {first['conversation']}, turn {first['turn'] + 1}"
            )
    if good:
        print("the same tokens in all answers")
    return good


def _turns(results: Results, base: str) -> None:
    later = range(1, results.turns)
    others = [v for v in results.variants if v != base]
    verdicts = Verdicts(results, base)
    _by_turn(results)
    print("\nfirst turn")
    _compared(results, [0], base)
    for v in others:
        verdicts.say(v, "first TTFT, of none's", [0], _mean_ttft, 1.05)
        verdicts.say(v, "first requests/s, of none's", [0], _requests_s, 0.95, True)
    if not later:
        return
    print("\nlater turns")
    _compared(results, later, base)
    print("KEP-74's table: TTFT -92 %, ITL -59 %, throughput +40 %; PR #934's:")
    print("requests/s 1.36 times, TTFT a third")
    for v in others:
        verdicts.say(v, "later TTFT, of none's", later, _mean_ttft, 0.08)
        verdicts.say(v, "later ITL, of none's", later, _mean_itl, 0.41)
        verdicts.say(v, "later requests/s, of none's", later, _requests_s, 1.4, True)


def _again(results: Results, base: str) -> None:
    last = [results.turns - 1]
    _compared(results, last, base)
    verdicts = Verdicts(results, base)
    for v in results.variants:
        if v != base:
            verdicts.say(v, "requests/s, of none's", last, _requests_s, 1.36, True)
            verdicts.say(v, "mean TTFT, of none's", last, _mean_ttft, 1 / 3)


def _serving(results: Results, base: str) -> None:
    """PR #912's: a row for each variant."""
    names = ("TTFT", "TPOT", "ITL")
    heads = "".join(f"{n + ' mean':>11}{'p95':>9}{'p99':>9}" for n in names)
    print(f"{'ms':10}{heads}{'req/s':>8}")
    turns = range(results.turns)
    for v in results.variants:
        f = results.of(v, turns)
        cells = "".join(
            f"{mean(x):11.1f}{percentile(x, 95):9.1f}{percentile(x, 99):9.1f}"
            for x in (f.ttft, f.tpot, f.itl)
        )
        print(f"{v:10}{cells}{f.requests_s:8.2f}")
    if "cpu" not in results.variants:
        return
    verdicts = Verdicts(results, "cpu")
    for v in results.variants:
        if v not in ("cpu", base):
            verdicts.say(v, "mean TTFT, of cpu's", turns, _mean_ttft, 1.013)
            verdicts.say(v, "requests/s, of cpu's", turns, _requests_s, 0.987, True)


def main(paths: Sequence[str], shape: str, base: str) -> bool:
    """Whether all variants gave the same answers."""
    good = True
    table = {"turns": _turns, "again": _again, "serving": _serving}[shape]
    for engine, results in load(paths).items():
        rounds = max(len(results.rounds(v)) for v in results.variants)
        requests = sum(line["kind"] == "request" for line in results.lines)
        print(f"-- {engine}: {rounds} rounds, {requests} requests")
        if base not in results.variants:
            there = ", ".join(results.variants)
            print(f"no lines of {base}, to compare with; there are those of {there}:")
            print("choose one of them (--baseline)")
            good = False
            continue
        table(results, base)
        good &= _tokens(results, base)
        print()
    return good
