"""python -m multiturn model|serve|run|report: see tests/bench/README.md."""

import argparse
import dataclasses
import os
import sys

from multiturn import models, report
from multiturn.engines import VLLM, Engine, Llama
from multiturn.run import Run
from multiturn.serve import BLOCK, Server, serve
from multiturn.workload import Workload


def _workload_options(p: argparse.ArgumentParser) -> None:
    p.add_argument("--conversations", type=int, default=4)
    p.add_argument("--turns", type=int, default=4)
    p.add_argument("--first", type=int, default=3072, help="tokens of the first turn")
    p.add_argument("--later", type=int, default=128, help="new ones in each later")
    p.add_argument("--answer", type=int, default=24, help="tokens of each answer")
    p.add_argument("--again", action="store_true", help="the same prompt each turn")
    p.add_argument("--seed", type=int, default=1)


def _workload(o: argparse.Namespace) -> Workload:
    names = [f.name for f in dataclasses.fields(Workload)]
    return Workload(**{k: v for k, v in vars(o).items() if k in names})


def _model(o: argparse.Namespace) -> None:
    make = models.make_gguf if o.path.endswith(".gguf") else models.make_safetensors
    make(models.SHAPES[o.shape], o.path)


def _serve(o: argparse.Namespace) -> None:
    # Whole blocks, and the one that is being filled.
    longest = (_workload(o).longest // BLOCK + 2) * BLOCK
    serve(
        Server(
            engine=o.engine,
            store=o.store,
            model=o.model,
            port=o.port,
            tokens=round(o.room * longest) // BLOCK * BLOCK,
            cpu_tokens=round(o.cpu_room * longest) // BLOCK * BLOCK,
            longest=longest,
            requests=o.requests,
            shape=o.shape,
            engine_id=o.engine_id,
        )
    )


def _engine(o: argparse.Namespace, urls: list[str], saves: bool) -> Engine:
    return VLLM(urls) if o.engine == "vllm" else Llama(urls, o.requests * saves)


def _run(o: argparse.Namespace) -> None:
    """The variants in turns, another one first in each round."""
    begin = o.round % len(o.variants)
    with open(o.out, "a") as out:
        for variant in o.variants[begin:] + o.variants[:begin]:
            name, _, servers = variant.partition("=")
            urls = servers.split(",")
            Run(
                _engine(o, urls, name != o.baseline),
                len(urls),
                _workload(o),
                names={"engine": o.engine, "variant": name},
                round_=o.round,
                pause=o.pause,
                out=out,
            ).run()


def _report(o: argparse.Namespace) -> bool:
    return report.main(o.files, o.shape, o.baseline)


def main() -> None:
    p = argparse.ArgumentParser(prog="multiturn", description=__doc__)
    verbs = p.add_subparsers(dest="verb", required=True)

    v = verbs.add_parser("model", help="a Llama of random weights")
    v.add_argument("path", help="FILE.gguf for llama.cpp, else a directory for vLLM")
    v.add_argument("--shape", choices=models.SHAPES, default="bench")

    v = verbs.add_parser("serve", help="a server on this machine's CPUs")
    v.add_argument("engine", choices=["vllm", "llama"])
    v.add_argument("store", help="none, cpu, files:DIR, kvpool:AT, mooncake:AT")
    v.add_argument("--model", required=True)
    v.add_argument("--shape", choices=models.SHAPES, default="bench")
    v.add_argument("--port", type=int, required=True)
    v.add_argument("--room", type=float, default=2.5, help="conversations in its cache")
    v.add_argument("--cpu-room", type=float, default=2.5, help="and in its CPU tier")
    v.add_argument("--requests", type=int, default=4, help="at once (llama: slots)")
    v.add_argument("--engine-id", default="", help="names vLLM's memory in /dev/shm")
    _workload_options(v)

    v = verbs.add_parser("run", help="a round of conversations with each variant")
    v.add_argument("engine", choices=["vllm", "llama"])
    v.add_argument("variants", nargs="+", help="NAME=URL,URL,... of its servers")
    v.add_argument("--out", required=True, help="file to which lines are added")
    v.add_argument("--round", type=int, default=0)
    v.add_argument("--pause", type=float, default=0.5, help="seconds between turns")
    v.add_argument("--requests", type=int, default=4, help="llama: slots of a server")
    v.add_argument("--baseline", default="none", help="llama: its slots are not saved")
    _workload_options(v)

    v = verbs.add_parser("report", help="tables")
    v.add_argument("files", nargs="+")
    v.add_argument("--shape", choices=report.SHAPES, default="turns")
    v.add_argument("--baseline", default="none")

    o = p.parse_args()
    verb = {"model": _model, "serve": _serve, "run": _run, "report": _report}[o.verb]
    if verb(o) is False:
        sys.stdout.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
