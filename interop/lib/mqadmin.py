"""The real mqadmin against the server: one process for all commands, and what their output must say."""

import base64
import subprocess

from . import drivers, toolchain


class Admin:
    """One AdminDriver process. Answers are the text a command printed."""

    def __init__(self, namesrv, home, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            drivers.java_command(toolchain.driver("admin"), home, "interop.AdminDriver", namesrv, heap="192m"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=home, encoding="utf-8",
        )  # fmt: skip

    def ask(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("@out"):
                return base64.b64decode(line[4:].strip()).decode(errors="replace")
        raise RuntimeError(f"mqadmin's process ended while running {' '.join(map(str, words))}")

    def run(self, *words):
        return self.ask("admin", *words)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
