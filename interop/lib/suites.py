"""Which scenarios there are, and in which order they run.

One server serves the clients' and the tools' suites; the store suites start servers of their own.
"""

import time

from . import admin_checks, drivers, mqadmin, pending, restart_checks, servers, store_checks, tool_checks, toolchain

BASIC = [
    "consume-orderly", "consume-concurrent", "retry", "dlq", "delay", "from-where", "consume-broadcast",
    "consume-orderly-suspend", "consume-tags", "consume-resume", "from-where-young", "pull-blocking",
    "send-sync", "send-auto-create", "send-async", "send-oneway", "send-selector", "send-properties", "send-big",
    "send-compressed", "send-refused", "pull", "offsets", "query",
]  # fmt: skip
NEWER = ["transaction", "lite-subscribe", "lite-assign", "send-batch", "send-fast-port", "sql-filter",
         "request-reply"]  # fmt: skip
NEWEST = ["timer", "recall", "pop", "send-lz4", "send-zstd"]
GO = [
    "consume-orderly", "consume-concurrent", "retry", "dlq", "delay", "consume-broadcast", "consume-tags",
    "consume-resume", "send-sync", "send-async", "send-oneway", "send-batch", "send-selector", "send-properties",
    "send-big", "send-compressed", "pull",
]  # fmt: skip

# Order matters only for time: what waits longest comes first.
CLIENTS = {
    "java5": NEWER[:1] + NEWEST[:1] + BASIC + NEWER[1:] + NEWEST[1:],
    "java49": NEWER[:1] + BASIC + NEWER[1:],
    "java32": BASIC,
    "go": GO,
}
# What writes for the mixed readings: each client, and the newest one with the compressions that 4.9 can read.
WRITERS = {suite: [(suite, "ZLIB")] for suite in CLIENTS}
WRITERS["java5"] += [("java5-lz4", "LZ4"), ("java5-zstd", "ZSTD")]
MIXES = [f"{consumer}-reads-{producer}" for consumer in CLIENTS for producer in CLIENTS if consumer != producer]
MIXES += ["java49-reads-java5-lz4", "java49-reads-java5-zstd"]


def everything():
    for suite, names in CLIENTS.items():
        for name in names:
            yield suite, name
    for name in MIXES:
        yield "mix", name
    for name in tool_checks.NAMES:
        yield tool_checks.SUITE, name
    for name in admin_checks.NAMES:
        yield "mqadmin", name
    for name in restart_checks.NAMES:
        yield restart_checks.SUITE, name
    for suite, names in store_checks.SUITES.items():
        for name in names:
            yield suite, name


def run_all(kind, home, report, run_pending=False):
    shared = [s for s in CLIENTS if report.wants_suite(s, CLIENTS[s])]
    mixes = [m for m in MIXES if report.wants("mix", m)]
    admin = [n for n in admin_checks.NAMES if report.wants("mqadmin", n)]
    tools = [n for n in tool_checks.NAMES if report.wants(tool_checks.SUITE, n)]
    if shared or mixes or admin or tools:
        Shared(kind, home, report, run_pending).run(shared, mixes, admin, tools)
    restart_checks.run(kind, home, report)
    store_checks.run(kind, home, report)


class Shared:
    """The suites that share one server."""

    def __init__(self, kind, home, report, run_pending):
        self.report = report
        self.run_pending = run_pending
        self.home = home
        self.kind = kind
        self.server = None
        self.admin = None
        self.drivers = {}
        self.produced = set()
        self.prefix = f"t{int(time.time()) % 100000}"

    def run(self, suites, mixes, admin, tools):
        self.server = servers.make(self.kind, self.home / "server")
        try:
            self.server.start()
            print(f"{self.kind} server started in {self.server.start_seconds:.2f} s", flush=True)
            try:
                self.admin = mqadmin.Admin(self.server.namesrv, self.home, self.home / "mqadmin.log")
            except toolchain.Missing as e:
                for name in admin:
                    self.report.skip("mqadmin", name, str(e))
            for suite in CLIENTS:
                mixing = any(m.startswith(f"{suite}-reads-") or f"-reads-{suite}" in m for m in mixes)
                if suite in suites or mixing:
                    self.clients(suite, suite in suites, mixing)
            self.mix(mixes)
            self.tools(tools)
            if admin and self.admin:
                for name in admin:
                    why = pending.reason(self.kind, name, self.run_pending)
                    if why:
                        self.report.skip("mqadmin", name, why)
                admin = [n for n in admin if not pending.reason(self.kind, n, self.run_pending)]
                admin_checks.run(self.admin, self.server, self.report, admin)
            if not self.server.alive():
                self.report.add("server", "survived", "FAIL", 0, "a server process has ended")
        finally:
            for driver in self.drivers.values():
                driver.close()
            if self.admin:
                self.admin.close()
            self.server.stop()

    def tools(self, names):
        try:
            if names:
                tool_checks.Tools(self.server, self.report, self.prefix, self.driver("java5")).run(names)
        except toolchain.Missing as e:
            for name in names:
                self.report.skip(tool_checks.SUITE, name, str(e))

    def driver(self, suite):
        if suite not in self.drivers:
            home, log = self.home, self.home / f"{suite}.log"
            if suite == "go":
                command = [str(toolchain.go_driver()), self.server.namesrv, "-"]
            else:
                command = drivers.java_command(toolchain.driver(suite), home, "interop.Main",
                                               self.server.namesrv, "-")  # fmt: skip
            self.drivers[suite] = drivers.Driver(suite, command, home, log)
        return self.drivers[suite]

    def clients(self, suite, scenarios, mixing):
        names = [n for n in CLIENTS[suite] if self.report.wants(suite, n)] if scenarios else []
        try:
            driver = self.driver(suite)
        except toolchain.Missing as e:
            for name in names:
                self.report.skip(suite, name, str(e))
            return
        prefix = f"{self.prefix}{suite}"
        for name in names:
            why = pending.reason(self.kind, name, self.run_pending)
            if why:
                self.report.skip(suite, name, why)
                continue
            extra = self.prepare(suite, name, prefix)
            if extra is not None:
                driver.submit(name, prefix=prefix, broker=self.server.broker, **extra)
        driver.collect(self.report, 420)
        if mixing:
            driver.suite = "mix"
            for writer, codec in WRITERS[suite]:
                driver.submit(f"mix-produce:{writer}-writes", prefix=prefix, topic=f"{self.prefix}-mix-{writer}",
                              broker=self.server.broker, codec=codec)  # fmt: skip
            before = self.report.count("FAIL")
            driver.collect(self.report, 60)
            if self.report.count("FAIL") == before:
                self.produced.update(writer for writer, _ in WRITERS[suite])

    def prepare(self, suite, name, prefix):
        """What a scenario needs that its client cannot make itself; None when it can't be had."""
        if name == "dlq" and suite == "java32" and self.admin:
            group = f"g-{prefix}-dlq"
            self.admin.run("updateSubGroup", "-c", servers.CLUSTER, "-g", group, "-r", 1)
        if name == "pop":
            if not self.admin:
                self.report.skip(suite, name, "no mqadmin to set the group's mode")
                return None
            topic, group = f"{prefix}-pop", f"g-{prefix}-pop"
            self.admin.run("updateTopic", "-c", servers.CLUSTER, "-t", topic, "-r", 4, "-w", 4)
            self.admin.run("updateSubGroup", "-c", servers.CLUSTER, "-g", group)
            self.admin.run("setConsumeMode", "-c", servers.CLUSTER, "-t", topic, "-g", group, "-m", "POP", "-q", 1)
            return {"topic": topic, "group": group}
        return {}

    def mix(self, mixes):
        """All consumers read what all producers wrote, each client's readings at the same time."""
        for consumer in CLIENTS:
            todo = [m for m in mixes if m.startswith(consumer + "-reads-")]
            if not todo:
                continue
            driver = self.drivers.get(consumer)
            asked = {}
            for name in todo:
                producer = name.split("-reads-")[1]
                if driver is None or producer not in self.produced:
                    self.report.skip("mix", name, "one of the two clients is not there")
                else:
                    asked[f"mix-consume:{name}"] = name
                    driver.submit(f"mix-consume:{name}", prefix=self.prefix, topic=f"{self.prefix}-mix-{producer}",
                                  **{"as": consumer})  # fmt: skip
            if driver:
                driver.collect(self.report, 90)
