"""tests/bench/multiturn: the conversations, what is measured of an answer, and the
arithmetic of the tables; with servers that only play an engine."""

import contextlib
import io
import json
import math
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from multiturn import report
from multiturn.client import Refused, ask, stream
from multiturn.engines import VLLM, Llama, Sources
from multiturn.figures import Results, figures, load, mean, percentile
from multiturn.run import Run
from multiturn.workload import Conversation, Workload

WORK = Workload(conversations=3, turns=3, first=20, later=5, answer=4)


def request(variant, turn, ttft, tokens=(1, 2, 3), gap=0.5, round_=0, prompt=10):
    gaps = [gap] * (len(tokens) - 1)
    return {
        "kind": "request",
        "engine": "vllm",
        "variant": variant,
        "round": round_,
        "turn": turn,
        "conversation": 0,
        "prompt": prompt,
        "ttft": ttft,
        "latency": ttft + sum(gaps),
        "gaps": gaps,
        "tokens": list(tokens),
    }


def turn(variant, turn, seconds, sources=(10, 0, 0, 0), round_=0):
    names = dict(zip(("computed", "own", "host", "outside"), sources))
    return {
        "kind": "turn",
        "engine": "vllm",
        "variant": variant,
        "round": round_,
        "turn": turn,
        "seconds": seconds,
        "sources": names,
    }


def both(variant, turn_, ttft, seconds, **options):
    round_ = options.get("round_", 0)
    return [
        request(variant, turn_, ttft, **options),
        turn(variant, turn_, seconds, round_=round_),
    ]


class WorkloadCase(unittest.TestCase):
    def test_a_prompt_is_all_before_the_answer_and_new_tokens(self):
        talk = Conversation(WORK, 0, 1)
        first = talk.next_prompt()
        self.assertEqual(len(first), 20)
        talk.answered([7, 8, 9, 10])
        second = talk.next_prompt()
        self.assertEqual(second[:24], first + [7, 8, 9, 10])
        self.assertEqual(len(second), 29)

    def test_the_longest_is_the_last_with_its_answer(self):
        talk = Conversation(WORK, 0, 0)
        for _ in range(WORK.turns):
            talk.next_prompt()
            talk.answered([1] * 4)
        self.assertEqual(len(talk.history), WORK.longest)

    def test_it_is_the_same_for_a_seed_and_else_another_one(self):
        self.assertEqual(WORK.message(0, 1, 2), WORK.message(0, 1, 2))
        messages = {tuple(WORK.message(r, c, 1)) for r in range(3) for c in range(3)}
        self.assertEqual(len(messages), 9)

    def test_the_next_turn_goes_to_the_other_server(self):
        self.assertEqual([WORK.server(1, t, 2) for t in range(4)], [1, 0, 1, 0])
        self.assertEqual({WORK.server(c, 0, 2) for c in range(2)}, {0, 1})

    def test_again_asks_for_the_same(self):
        w = Workload(conversations=1, turns=2, first=9, later=0, answer=4, again=True)
        talk = Conversation(w, 0, 0)
        first = talk.next_prompt()
        talk.answered([1] * 4)
        self.assertEqual(talk.next_prompt(), first)
        self.assertEqual(w.longest, 13)


class FiguresCase(unittest.TestCase):
    def test_percentiles_are_linear_between_neighbours(self):
        self.assertEqual(percentile([4, 1, 3, 2], 50), 2.5)
        self.assertEqual(percentile([1, 2, 3], 100), 3)
        self.assertEqual(percentile([1, 2, 3], 0), 1)
        self.assertAlmostEqual(percentile(range(101), 99), 99)
        self.assertEqual(percentile([5], 99), 5)
        self.assertTrue(math.isnan(percentile([], 50)))
        self.assertTrue(math.isnan(mean([])))

    def test_figures_of_turns(self):
        f = figures(
            both("a", 0, 1.0, 4.0)
            + [request("a", 0, 3.0, tokens=(1,), prompt=30)]
            + [turn("a", 1, 1.0, sources=(1, 2, 0, 3))]
        )
        self.assertEqual(f.requests_s, 2 / 5)
        self.assertEqual(f.input_s, 40 / 5)
        self.assertEqual(f.output_s, 4 / 5)
        self.assertEqual(f.ttft, (1000, 3000))
        self.assertEqual(f.tpot, (500,))  # none of an answer of one token
        self.assertEqual(f.itl, (500, 500))
        self.assertEqual((f.computed, f.own, f.outside, f.prompts), (11, 2, 3, 16))

    def test_ratios_are_of_rounds_that_both_had(self):
        lines = both("none", 1, 2.0, 1) + both("none", 1, 4.0, 1, round_=1)
        lines += both("pool", 1, 1.0, 1) + both("pool", 1, 1.0, 1, round_=1)
        lines += both("pool", 1, 9.0, 1, round_=2)
        ratios = Results(lines).ratios("pool", "none", [1], lambda f: mean(f.ttft))
        self.assertEqual(ratios, [0.25, 0.5])

    def test_other_answers_are_found(self):
        lines = both("none", 0, 1, 1) + both("pool", 0, 1, 1, tokens=(1, 2, 4))
        self.assertEqual(len(Results(lines).others("pool", "none")), 1)
        self.assertEqual(Results(lines).others("none", "none"), [])

    def test_changes(self):
        self.assertEqual(report.change(8, 100), "-92 %")
        self.assertEqual(report.change(1.4, 1.0), "+40 %")
        self.assertEqual(report.change(1, 0), "-")
        self.assertEqual(report.change(math.nan, 1), "-")


class ReportCase(unittest.TestCase):
    def run_report(self, lines, shape="turns"):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
            f.flush()
            self.assertEqual(list(load([f.name])), ["vllm"])
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                good = report.main([f.name], shape, "none")
        return good, out.getvalue()

    def lines(self, first, later):
        lines = both("none", 0, 1.0, 2.0) + both("none", 1, 1.0, 2.0, gap=1.0)
        return (
            lines
            + both("pool", 0, first, 2.0)
            + both("pool", 1, later, 0.5, gap=0.25)
        )

    def test_what_is_aimed_at_was_reached(self):
        good, out = self.run_report(self.lines(1.04, 0.05))
        self.assertTrue(good)
        self.assertNotIn("MISSED", out)
        self.assertEqual(out.count(" ok"), 5)
        self.assertIn("-95 %", out)
        self.assertIn("+300 %", out)
        self.assertIn("the same tokens", out)

    def test_or_not(self):
        _, out = self.run_report(self.lines(1.06, 0.09))
        self.assertEqual(out.count("MISSED"), 2)
        lines = self.lines(1.0, 0.05)
        lines[-2]["gaps"] = [0.42, 0.42]  # none's: 1.0
        _, out = self.run_report(lines)
        self.assertRegex(out, r"later ITL, of none's +0.420 +aim <=  0.41  MISSED")

    def test_changes_are_within_rounds_that_both_had(self):
        lines = self.lines(1, 1.0) + both("none", 1, 4.0, 8.0, round_=1)
        lines += both("other", 1, 1.0, 1.0, round_=1)
        _, out = self.run_report(lines)
        later = out[out.index("later turns") :]
        self.assertRegex(later, r"mean TTFT, ms +2500 +1000 +\+0 % +1000 +-75 %")
        self.assertRegex(later, r"requests/s +0.20 +2.00 +\+300 % +1.00 +\+700 %")

    def test_peers_are_not_judged(self):
        lines = self.lines(1.06, 0.09)
        for line in lines:
            line["variant"] = line["variant"].replace("pool", "tmpfs")
        _, out = self.run_report(lines)
        self.assertIn("  tmpfs     later TTFT", out)
        self.assertNotIn("aim <=", out)

    def test_other_tokens_are_an_error(self):
        lines = self.lines(1, 1)
        lines[-2]["tokens"] = [1, 2, 9]
        good, out = self.run_report(lines)
        self.assertFalse(good)
        self.assertIn("WRONG: 1 other answers with pool", out)

    def test_without_what_is_compared_with_it_says_what_there_is(self):
        good, out = self.run_report(both("pool", 0, 1.0, 2.0))
        self.assertFalse(good)
        self.assertIn("no lines of none, to compare with; there are those of pool", out)

    def test_all_once_more_is_judged(self):
        _, out = self.run_report(self.lines(9.0, 0.33), "again")
        self.assertRegex(out, r"requests/s, of none's +4.000 +aim >=  1.36  ok")
        self.assertRegex(out, r"mean TTFT, of none's +0.330 +aim <= 0.3333  ok")
        _, out = self.run_report(self.lines(0.1, 0.34), "again")
        self.assertEqual(out.count("MISSED"), 1)

    def test_serving_is_judged_by_the_cpu_tier_alone(self):
        lines = both("none", 0, 9.0, 9.0) + both("cpu", 0, 1.0, 1.0)
        mount = both("mount", 0, 1.012, 1.01)
        _, out = self.run_report(lines + mount, "serving")
        self.assertRegex(out, r"mean TTFT, of cpu's +1.012 +aim <= 1.013  ok")
        self.assertRegex(out, r"requests/s, of cpu's +0.990 +aim >= 0.987  ok")
        _, out = self.run_report(lines + both("mount", 0, 1.014, 1.02), "serving")
        self.assertEqual(out.count("MISSED"), 2)

    def test_serving_has_percentiles(self):
        lines = [turn("none", 0, 1.0)]
        lines += [request("none", 0, n / 1000) for n in range(101)]
        _, out = self.run_report(lines, "serving")
        self.assertRegex(out, r"none +50.0 +95.0 +99.0 +500.0 +500.0 +500.0 ")
        _, out = self.run_report(lines, "turns")
        self.assertRegex(out, r"p99 TTFT, ms +99")


class Played(BaseHTTPRequestHandler):
    """A vLLM that answers 5, 6, 7, ...; or as configured."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/v1/models":
            self.answer({"data": [{"id": "m"}]})
        elif self.path == "/metrics":
            name = 'vllm:prompt_tokens_%s_total{engine="0",source="%s"} %s\n'
            sources = (
                ("by_source", "local_compute", 3.0),
                ("by_source", "local_cache_hit", 2.0),
                ("cached_by_source", "device", 2.0),
                ("cached_by_source", "host", 1.0),
                ("cached_by_source", "disk", 5.0),
            )
            page = "".join(name % s for s in sources) + "vllm:other 1.0\n"
            self.answer(page.encode())
        else:
            self.send_error(404, "not here")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        if self.path.startswith("/slots/"):
            time.sleep(self.server.slot_seconds)
            self.answer({})
            return
        self.send_response(200)
        self.end_headers()
        for event in self.server.events(body):
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())


def vllm_events(body):
    for i in range(body["max_tokens"]):
        yield {"choices": [{"token_ids": [5 + i]}]}
    yield {"choices": []}


def llama_events(body):
    for i in range(body["n_predict"]):
        yield {"tokens": [5 + i], "stop": False}
    yield {"tokens": [], "stop": True, "timings": {"prompt_n": 4, "cache_n": 6}}


class ClientCase(unittest.TestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Played)
        self.server.asked = []
        self.server.events = vllm_events
        self.server.slot_seconds = 0
        threading.Thread(target=self.server.serve_forever).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]

    def test_each_token_has_its_time(self):
        answer = VLLM([self.url]).says(0, "c", [1, 2], 4)
        self.assertEqual(answer.tokens, [5, 6, 7, 8])
        self.assertEqual(len(answer.gaps), 3)
        self.assertGreater(answer.ttft, 0)
        self.assertAlmostEqual(answer.latency, answer.ttft + sum(answer.gaps))
        path, body = self.server.asked[0]
        self.assertEqual(path, "/v1/completions")
        self.assertEqual((body["model"], body["prompt"]), ("m", [1, 2]))

    def test_sources_are_of_all_servers(self):
        engine = VLLM([self.url, self.url])
        self.assertEqual(engine.sources(), Sources(6, 4, 2, 10))
        left = engine.sources() - Sources(1, 1, 1, 1)
        self.assertEqual(left, Sources(5, 3, 1, 9))

    def test_errors_are_reported(self):
        with self.assertRaisesRegex(Refused, "404"):
            ask(self.url + "/nothing")
        self.server.events = lambda body: [{"error": {"message": "too long"}}]
        with self.assertRaisesRegex(Refused, "too long"):
            stream(self.url + "/v1/completions", {}, lambda e: [])

    def test_slots_are_restored_before_and_saved_after(self):
        self.server.events = llama_events
        engine = Llama([self.url], slots=1)
        self.assertEqual(engine.says(0, "c", [1] * 10, 2).tokens, [5, 6])
        paths = [path for path, _ in self.server.asked]
        self.assertEqual(
            paths,
            ["/slots/0?action=restore", "/completion", "/slots/0?action=save"],
        )
        self.assertEqual(engine.sources(), Sources(4, 0, 0, 6))

    def test_restoring_a_slot_is_part_of_the_time_to_the_first_token(self):
        self.server.events = llama_events
        self.server.slot_seconds = 0.05
        answer = Llama([self.url], slots=1).says(0, "c", [1] * 10, 2)
        self.assertGreaterEqual(answer.ttft, 0.05)
        self.assertAlmostEqual(answer.latency, answer.ttft + sum(answer.gaps))

    def test_both_engines_are_asked_for_what_they_have_cached(self):
        self.server.events = llama_events
        Llama([self.url], slots=0).says(0, "c", [1], 2)
        self.server.events = vllm_events
        VLLM([self.url]).says(0, "c", [1], 2)
        llama, vllm = (body for _, body in self.server.asked)
        self.assertTrue(llama["cache_prompt"])
        self.assertEqual((llama["temperature"], vllm["temperature"]), (0, 0))

    def test_slots_are_left_alone(self):
        self.server.events = llama_events
        engine = Llama([self.url], slots=0)
        engine.says(0, "c", [1] * 10, 2)
        self.assertEqual([path for path, _ in self.server.asked], ["/completion"])
        self.assertEqual(engine.sources(), Sources(4, 6, 0, 0))

    def test_a_round_is_a_line_for_each_request_and_turn(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()):
            self.run_one(out)
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        kinds = [line["kind"] for line in lines]
        self.assertEqual(kinds, (["request"] * 3 + ["turn"]) * 3)
        self.assertEqual({line["variant"] for line in lines}, {"v"})
        prompts = [r["prompt"] for r in lines if r["kind"] == "request"]
        self.assertEqual(prompts, [20] * 3 + [29] * 3 + [38] * 3)

    def test_an_answer_that_is_too_short_is_an_error(self):
        self.server.events = lambda body: [{"choices": [{"token_ids": [5]}]}]
        with self.assertRaisesRegex(RuntimeError, "1 tokens, not 4"):
            self.run_one(io.StringIO())

    def run_one(self, out):
        Run(
            VLLM([self.url, self.url]),
            2,
            WORK,
            names={"engine": "vllm", "variant": "v"},
            round_=0,
            pause=0,
            out=out,
        ).run()


if __name__ == "__main__":
    unittest.main()
