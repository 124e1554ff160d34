"""A store written under one server and opened by another: the original's by ours, ours by the original.

Each pair runs twice, once after a clean stop and once after kill -9. Both servers of a pair use the same folder,
the same ports (message ids hold the broker's address) and the same settings, with small files so that they roll.
"""

import re
import shutil
import time

from . import drivers, pending, servers, toolchain

STEPS = ["write", "open", "messages", "queries", "positions", "pending", "append"]
PAIRS = [("java", "java"), ("java", "apogee"), ("apogee", "java"), ("apogee", "apogee")]
SUITES = {f"store-{a}-to-{b}-{how}": STEPS for a, b in PAIRS for how in ("clean", "kill")}

SMALL_FILES = {
    "mappedFileSizeCommitLog": 1024 * 1024,
    "mappedFileSizeConsumeQueue": 6000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "timerWheelEnable": "false",
}


def run(kind, home, report):
    for writer, reader in PAIRS:
        if kind == "java" and "apogee" in (writer, reader):
            continue
        if kind == "apogee" and (writer, reader) == ("java", "java"):
            continue  # the original against itself is what --server java shows
        for how in ("clean", "kill"):
            suite = f"store-{writer}-to-{reader}-{how}"
            steps = [s for s in STEPS if report.wants(suite, s)]
            if steps:
                Pair(suite, writer, reader, how, home / suite, report).run(steps)


class Pair:
    def __init__(self, suite, writer, reader, how, home, report):
        self.suite, self.writer, self.reader, self.how = suite, writer, reader, how
        self.home, self.report = home, report
        # What the writing server cannot do yet is left out of the store.
        self.transactions = pending.reason(writer, "transaction", False) is None
        self.manifest = home / "manifest.tsv"
        self.prefix = f"s{int(time.time()) % 100000}"

    def run(self, steps):
        self.home.mkdir(parents=True)
        try:
            class_path = toolchain.driver("java5")
        except toolchain.Missing as e:
            for step in steps:
                self.report.skip(self.suite, step, str(e))
            return
        ports = None
        server = None
        begin = time.time()
        step = "write"
        try:
            server = servers.make(self.writer, self.home / "server", settings=SMALL_FILES)
            ports = (server.namesrv_port, server.broker_port)
            server.start()
            ok = self.scenarios(class_path, server, ["write"])
            if ok:
                self.positions_on_disk(server)
            server.stop(kill=self.how == "kill")
            if not ok:
                return
            shutil.copytree(server.store / "config", self.home / "config-as-written", dirs_exist_ok=True)
            step, begin = "open", time.time()
            server = servers.make(self.reader, self.home / "server", settings=SMALL_FILES, ports=ports)
            server.start()
            self.report.add(self.suite, "open", "ok", time.time() - begin, f"up in {server.start_seconds:.2f} s")
            for group in (["messages", "queries"], ["positions", "pending"], ["append"]):
                self.scenarios(class_path, server, [s for s in group if s in steps])
        except (RuntimeError, OSError, toolchain.Missing) as e:
            self.report.add(self.suite, step, "FAIL", time.time() - begin, " ".join(str(e).split())[:600])
        finally:
            if server:
                server.stop(kill=True)

    def scenarios(self, class_path, server, names):
        """Runs store scenarios in one client process; True when all went well."""
        if not names:
            return True
        before = self.report.count("FAIL")
        command = drivers.java_command(class_path, self.home, "interop.Main", server.namesrv, "-")
        driver = drivers.Driver(self.suite, command, self.home, self.home / "client.log")
        for name in names:
            driver.submit(f"store-{name}:{name}", prefix=self.prefix, manifest=self.manifest, broker=server.broker,
                          label=f"{self.prefix}x", transactions=self.transactions,
                          reader=self.reader)  # fmt: skip
        driver.collect(self.report, 180)
        driver.close()
        return self.report.count("FAIL") == before

    def positions_on_disk(self, server):
        """Positions reach the disk every few seconds; a kill before that may cost them, so wait for it."""
        path = server.store / "config" / "consumerOffset.json"
        wanted = re.compile(rf'"{self.prefix}-plain@g-{self.prefix}-plain"\s*:\s*\{{\s*"?0"?\s*:\s*10\b')
        servers.wait_for(f"the positions in {path.name}", 30,
                         lambda: path.exists() and wanted.search(path.read_text(errors="replace")))  # fmt: skip
