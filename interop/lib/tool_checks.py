"""Our own `apogee send` and `apogee tail` against either kind of server, and against the official Java client."""

import subprocess
import time

from . import servers, toolchain

SUITE = "tools"
NAMES = ["send-tail", "java5-reads-send", "tail-reads-java5", "send-delay", "tail-tags", "errors"]
COUNT = 40


class Tools:
    def __init__(self, server, report, prefix, driver):
        self.server, self.report, self.prefix = server, report, f"{prefix}-tools"
        self.driver = driver
        self.binary = toolchain.apogee_binary()

    def apogee(self, *words, code=0, timeout=40):
        command = [str(self.binary), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, encoding="utf-8")
        if done.returncode != code:
            raise AssertionError(f"apogee {' '.join(command[1:3])} exited {done.returncode}, not {code}: "
                                 f"{' '.join((done.stdout + done.stderr).split())[:300]}")  # fmt: skip
        return done.stdout, done.stderr

    def send(self, topic, *words):
        return self.apogee("send", "-n", self.server.namesrv, topic, *words)

    def tail(self, topic, number, *words):
        return self.apogee("tail", "--namesrv", self.server.namesrv, topic, "--from", "first", "-n", number,
                           *words)[0]  # fmt: skip

    def run(self, names):
        for name in names:
            begin = time.time()
            try:
                getattr(self, name.replace("-", "_"))()
            except (AssertionError, OSError, subprocess.TimeoutExpired) as e:
                self.report.add(SUITE, name, "FAIL", time.time() - begin, str(e))
                continue
            if name != "java5-reads-send":  # the driver reports that one
                self.report.add(SUITE, name, "ok", time.time() - begin)

    def send_tail(self):
        topic = f"{self.prefix}-plain"
        self.send(topic, "--tag", "标签", "--key", "k1", "--property", "名字=值 😀", "正文 🚀")
        self.send(topic, "second", "third")
        out = self.tail(topic, 3, "-v")
        for text in ("正文 🚀", "second", "third", "名字=值 😀", "TAGS=标签", "KEYS=k1"):
            equal(True, text in out, f"'{text}' in what tail prints: {' '.join(out.split())[:300]}")

    def java5_reads_send(self):
        topic = f"{self.prefix}-mix"
        for i in range(COUNT):
            self.send(topic, "--tag", "odd" if i % 2 else "even", "--key", f"key-{i}", "--property", f"名字=值-{i}",
                      body(i))  # fmt: skip
        self.driver.suite = SUITE
        self.driver.submit("mix-consume:java5-reads-send", prefix=self.prefix, topic=topic, **{"as": "java5"})
        self.driver.collect(self.report, 90)

    def tail_reads_java5(self):
        """Compressed bodies too."""
        topic = f"{self.prefix}-java"
        self.driver.suite = SUITE
        self.driver.submit("mix-produce:java5-writes", prefix=self.prefix, topic=topic, broker=self.server.broker)
        self.driver.collect(self.report, 60)
        equal(sorted(body(i) for i in range(COUNT)), sorted(self.tail(topic, COUNT).splitlines()), "bodies")

    def send_delay(self):
        topic = f"{self.prefix}-delay"
        self.send(topic, "now")
        begin = time.time()
        self.send(topic, "--delay", 2, "later")
        equal({"now", "later"}, set(self.tail(topic, 2).split()), "bodies")
        took = time.time() - begin
        equal(True, 5.0 <= took <= 8.0, f"a message of level 2 came after {took:.2f} s")

    def tail_tags(self):
        topic = f"{self.prefix}-tags"
        for tag in ("Aa", "BB", "C", "Aa"):
            self.send(topic, "--tag", tag, f"body-{tag}")
        equal(["body-Aa", "body-Aa"], self.tail(topic, 2, "--tag", "Aa").split(), "bodies of one of two equal hashes")
        equal(["body-BB", "body-C"], sorted(self.tail(topic, 2, "--tag", "BB || C").split()), "bodies of two tags")

    def errors(self):
        port = servers.free_port()
        _, text = self.apogee("send", "-n", f"127.0.0.1:{port}", "any", "x", code=1)
        equal(True, str(port) in text, f"the unreachable address is named: {text[:200]}")
        _, text = self.apogee("tail", "--namesrv", self.server.namesrv, "no-such-topic", "-n", 1, code=1)
        equal(True, "no-such-topic" in text, f"the missing topic is named: {text[:200]}")


def body(i):
    """Number i of the mixed scenarios' contract."""
    return f"mix-{i}" + (" padded" * 1000 if i % 4 == 0 else "")


def equal(expected, came, what):
    if expected != came:
        raise AssertionError(f"{what}: expected {str(expected)[:200]}, came {str(came)[:200]}")
