#!/usr/bin/env python3
"""browser.py CHROMIUM URL STEP...: a page in a headless browser, driven over its pipe.

size=WxH            of the window
media=dark|light    prefers-color-scheme
open                loads URL
until=JS            waits until the expression is true, at most 30 s; while it throws
                    (the page is being loaded), it is not
print=JS            prints its value
do=JS               the same without printing
type=TEXT           into what has the focus
key=Tab|Enter
run=COMMAND         in a shell
shot=FILE           a PNG of the whole page
heap                prints what is in use after garbage collection: {"bytes", "nodes",
                    "listeners"}
quiet               fails if the browser logged an error (a violation of the page's
                    policy, an exception)
"""
import base64
import json
import os
import subprocess
import sys
import tempfile
import time

SECONDS = 30
KEYS = {"Tab": 9, "Enter": 13}


class Browser:
    def __init__(self, program, profile):
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()

        def pipes():  # the browser reads 3 and writes 4
            a, b = os.dup(to_read), os.dup(from_write)
            os.dup2(a, 3)
            os.dup2(b, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server",
             "--remote-debugging-pipe", "--disable-dev-shm-usage",
             "--disable-background-networking", f"--user-data-dir={profile}"],
            preexec_fn=pipes, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.out, self.into = to_write, from_read
        self.buffer, self.number, self.session = b"", 0, None
        self.errors = []

    def message(self):
        while b"\0" not in self.buffer:
            data = os.read(self.into, 1 << 20)
            if not data:
                sys.exit("browser.py: the browser has ended")
            self.buffer += data
        one, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(one)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"browser.py: {method}: {answer['error']}")
                return answer["result"]
            self.event(answer)

    def event(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:500])
        if event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            if params["entry"]["source"] != "network":
                self.errors.append(params["entry"]["text"])
        if event.get("method") == "Page.javascriptDialogOpening":  # it would wait for an answer
            sys.exit(f"browser.py: the page opens a dialog: {params['message'][:500]}")

    def value(self, expression, thrown=None):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            if thrown is not None:
                return thrown
            sys.exit(f"browser.py: {expression}: {json.dumps(result)[:500]}")
        return result["result"].get("value")


def step(b, url, name, value):
    if name == "size":
        w, h = map(int, value.split("x"))
        b.call("Emulation.setDeviceMetricsOverride", width=w, height=h,
               deviceScaleFactor=1, mobile=w < 600)
    elif name == "media":
        b.call("Emulation.setEmulatedMedia",
               features=[{"name": "prefers-color-scheme", "value": value}])
    elif name == "open":
        b.call("Page.navigate", url=url)
    elif name == "until":
        end = time.monotonic() + SECONDS
        while not b.value(value, thrown=False):
            if time.monotonic() > end:
                sys.exit(f"browser.py: never true: {value}\nthe page says: " +
                         str(b.value("document.body.innerText"))[:1500])
            time.sleep(0.1)
    elif name == "print":
        got = b.value(value)
        print(got if isinstance(got, str) else json.dumps(got), flush=True)
    elif name == "do":
        b.value(value)
    elif name == "type":
        b.call("Input.insertText", text=value)
    elif name == "key":
        for kind in "keyDown", "keyUp":
            text = {"text": "\r"} if value == "Enter" and kind == "keyDown" else {}
            b.call("Input.dispatchKeyEvent", type=kind, key=value, code=value,
                   windowsVirtualKeyCode=KEYS[value], **text)
    elif name == "run":
        subprocess.run(value, shell=True, check=True)
    elif name == "shot":
        png = b.call("Page.captureScreenshot", captureBeyondViewport=True)
        open(value, "wb").write(base64.b64decode(png["data"]))
    elif name == "heap":
        for _ in range(3):  # what a finalizer frees goes in the next one
            b.call("HeapProfiler.collectGarbage")
        counters = b.call("Memory.getDOMCounters")
        print(json.dumps({"bytes": b.call("Runtime.getHeapUsage")["usedSize"],
                          "nodes": counters["nodes"],
                          "listeners": counters["jsEventListeners"]}), flush=True)
    elif name == "quiet":
        b.value("1")
        if b.errors:
            sys.exit("browser.py: the browser says:\n" + "\n".join(b.errors))
    else:
        sys.exit(f"browser.py: {name}: unknown step")


def main():
    program, url, *steps = sys.argv[1:]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        b = Browser(program, profile)
        try:
            target = b.call("Target.createTarget", url="about:blank")["targetId"]
            b.session = b.call("Target.attachToTarget", targetId=target,
                               flatten=True)["sessionId"]
            b.call("Emulation.setScrollbarsHidden", hidden=True)
            for domain in "Page", "Runtime", "Log":
                b.call(domain + ".enable")
            for one in steps:
                name, _, value = one.partition("=")
                step(b, url, name, value)
        finally:
            b.process.kill()
            b.process.wait()


main()
