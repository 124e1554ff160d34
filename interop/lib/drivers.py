"""Talking to a driver: a client program that runs scenarios by name, many at a time.

A driver reads "NAME key=value ..." lines and answers each with "@ok|@FAIL|@skipped NAME MILLISECONDS TEXT".
A thread reads the answers; everything else happens on the runner's thread.
"""

import queue
import subprocess
import threading
import time

from .servers import LOGBACK


class Driver:
    def __init__(self, suite, command, home, log):
        self.suite = suite
        self.pending = {}
        self.answers = queue.Queue()
        self.log_path = log
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, encoding="utf-8",
            cwd=home
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("@"):
                self.answers.put(line.rstrip("\n"))
            else:
                self.log.write(line.encode())
        self.answers.put(None)

    def submit(self, name, **args):
        self.pending[name] = time.time()
        words = [name, *(f"{k}={v}" for k, v in args.items())]
        try:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # collect() finds the end and reports it

    def collect(self, report, seconds):
        """Reports all pending scenarios; those that do not answer in time fail."""
        deadline = time.time() + seconds
        while self.pending:
            try:
                line = self.answers.get(timeout=max(0.1, deadline - time.time()))
            except queue.Empty:
                line = None
            if line is None:
                ended = self.process.poll() is not None
                why = f"the client program ended ({self.process.returncode})" if ended else "no answer in time"
                for name, begin in self.pending.items():
                    report.add(self.suite, shown(name), "FAIL", time.time() - begin, why)
                self.pending = {}
                return
            result, name, ms, *text = line[1:].split(" ", 3)
            if name in self.pending:
                del self.pending[name]
                report.add(self.suite, shown(name), result, int(ms) / 1000, text[0] if text else "")

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.log.close()


def shown(name):
    """A scenario may run under a label of its own: "mix-consume:go-reads-java5" is shown as "go-reads-java5"."""
    return name.split(":", 1)[-1]


def java_command(class_path, home, main, *args, heap="256m"):
    """A client's JVM: small, and its logging (of either generation) at WARN into the home folder."""
    logback = home / f"{main}-logback.xml"
    logback.write_text(LOGBACK.format(log=home / "client-logs" / f"{main}.log"))
    return [
        "java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={home}",
        f"-Drocketmq.client.logRoot={home}/client-logs", "-Drocketmq.client.logLevel=WARN",
        f"-Drmq.logback.configurationFile={logback}", "-Dfile.encoding=UTF-8",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-cp", class_path, main, *args,
    ]  # fmt: skip
