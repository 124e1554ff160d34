"""Starting, stopping and killing a server: ours, or the original's name server and broker.

Each server lives in a folder of its own and on ports of its own. The broker's port is chosen so that the
port two below (fast port) and one above (replication) are free as well.
"""

import json
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

from . import remoting, toolchain

CLUSTER = "DefaultCluster"
BROKER = "broker-a"

LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d %p %t %logger{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="file"/></root>
</configuration>
"""

SETTINGS = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER,
    "brokerId": 0,
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "transactionTimeOut": 3000,
    "transactionCheckInterval": 3000,
    "registerNameServerPeriod": 10000,
    "deleteWhen": "04",
    "fileReservedTime": 48,
}


def port_free(port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def free_port(*offsets):
    """A port p such that p and p+offset for each offset are free now; outside the range of outgoing ports."""
    for _ in range(1000):
        port = random.randrange(12_000, 31_000)
        if all(port_free(port + o) for o in (0, *offsets)):
            return port
    raise RuntimeError("no free port found")


def wait_for(what, seconds, done, process=None, log=None):
    deadline = time.time() + seconds
    while not done():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what}: the process ended with {process.returncode}\n{tail(log)}")
        if time.time() > deadline:
            raise RuntimeError(f"{what}: not within {seconds} s\n{tail(log)}")
        time.sleep(0.02)


def tail(log, size=2000):
    if log is None or not Path(log).exists():
        return ""
    return Path(log).read_text(errors="replace")[-size:]


class Server:
    """What both kinds share: a folder, ports, settings in the original's form."""

    kind = "?"

    def __init__(self, home, settings=None, ports=None):
        self.home = Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.store = self.home / "store"
        self.namesrv_port, self.broker_port = ports or (free_port(), free_port(-2, 1))
        self.settings = {**SETTINGS, **(settings or {})}
        self.processes = []
        self.start_seconds = None

    @property
    def namesrv(self):
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def broker(self):
        return f"127.0.0.1:{self.broker_port}"

    def write_config(self, extra):
        path = self.home / "broker.conf"
        lines = {**self.settings, "storePathRootDir": str(self.store), **extra}
        path.write_text("".join(f"{k}={v}\n" for k, v in lines.items()))
        return path

    def spawn(self, command, log, env=None):
        handle = open(log, "ab")
        process = subprocess.Popen(
            command, stdout=handle, stderr=handle, stdin=subprocess.DEVNULL, cwd=self.home, env=env
        )
        handle.close()
        self.processes.append(process)
        return process

    def pids(self):
        return [p.pid for p in self.processes if p.poll() is None]

    def stop(self, kill=False, seconds=60):
        """SIGTERM, last started first, and waits; or SIGKILL for all at once. Returns the seconds it took."""
        begin = time.time()
        late = []
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            if not kill:
                late += self._wait(process, seconds)
        for process in self.processes:
            process.wait()
        self.processes = []
        if late:
            raise RuntimeError(f"{self.kind} did not stop within {seconds} s of SIGTERM and was killed")
        return time.time() - begin

    @staticmethod
    def _wait(process, seconds):
        try:
            process.wait(seconds)
            return []
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return [process]

    def alive(self):
        return bool(self.processes) and all(p.poll() is None for p in self.processes)

    def logs(self):
        return sorted(self.home.glob("*.log"))


class JavaServer(Server):
    """Name server and broker of Apache RocketMQ, each a process with a small heap."""

    kind = "java"

    def __init__(self, home, settings=None, ports=None, heap="512m", namesrv_heap="128m"):
        super().__init__(home, settings, ports)
        self.heap = heap
        self.namesrv_heap = namesrv_heap
        self.jars = toolchain.jars("server")

    def java(self, name, heap, main, *args):
        logback = self.home / f"{name}-logback.xml"
        logback.write_text(LOGBACK.format(log=self.home / f"{name}.log"))
        return [
            "java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:-OmitStackTraceInFastThrow",
            f"-Duser.home={self.home}", f"-Drmq.logback.configurationFile={logback}",
            "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "-cp", f"{self.jars}/*", main, *args,
        ]  # fmt: skip

    def start(self):
        begin = time.time()
        self.launch_namesrv()
        self.launch_broker()
        # Its first registration may fail without a word; the next comes after registerNameServerPeriod.
        wait_for("the broker's route", 60, lambda: remoting.has_route(self.namesrv, "TBW102"), self.processes[-1])
        self.start_seconds = time.time() - begin
        return self

    def launch_namesrv(self, wait=True):
        conf = self.home / "namesrv.conf"
        conf.write_text(f"listenPort={self.namesrv_port}\nkvConfigPath={self.home}/kvConfig.json\n")
        self.launch("namesrv", self.namesrv_heap, "org.apache.rocketmq.namesrv.NamesrvStartup", conf, wait)

    def launch_broker(self, wait=True):
        conf = self.write_config({"listenPort": self.broker_port, "namesrvAddr": self.namesrv})
        self.launch("broker", self.heap, "org.apache.rocketmq.broker.BrokerStartup", conf, wait)

    def launch(self, name, heap, main, conf, wait):
        out = self.home / f"{name}-out.log"
        mark = out.stat().st_size if out.exists() else 0
        env = {**os.environ, "ROCKETMQ_HOME": str(self.home)}
        process = self.spawn(self.java(name, heap, main, "-c", str(conf)), out, env)
        if wait:
            wait_for(f"the original's {name}", 120, lambda: b"boot success" in out.read_bytes()[mark:], process, out)


class ApogeeServer(Server):
    """Ours: one process."""

    kind = "apogee"

    def __init__(self, home, settings=None, ports=None):
        super().__init__(home, settings, ports)
        self.binary = toolchain.apogee_binary()
        self.ready_file = self.home / "ready.json"
        self.ready = {}

    def start(self):
        begin = time.time()
        self.launch()
        wait_for("apogee", 120, self.ready_file.exists, self.processes[-1], self.home / "apogee.log")
        self.start_seconds = time.time() - begin
        self.ready = json.loads(self.ready_file.read_text())
        return self

    def launch(self):
        """Starts the process without waiting for it."""
        config = self.write_config({})
        self.ready_file.unlink(missing_ok=True)
        self.spawn(
            [str(self.binary), "serve", "--data", str(self.home / "data"), "--host", "127.0.0.1",
             "--namesrv-port", str(self.namesrv_port), "--broker-port", str(self.broker_port),
             "--proxy-port", "0", "--console-port", "0", "--metrics-port", "0",
             "--config", str(config), "--ready-file", str(self.ready_file)], self.home / "apogee.log"
        )  # fmt: skip


def make(kind, home, **kwargs):
    return (JavaServer if kind == "java" else ApogeeServer)(home, **kwargs)
