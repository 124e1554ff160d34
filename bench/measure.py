"""What is measured from outside: a server's processor time, memory, start-up; and what the load tool reports.

Everything is read from /proc for the server's processes together (the original has two, ours one), so the load
tool's own share of the machine is not counted, though it runs on the same processors.
"""

import json
import os
import platform
import statistics
import subprocess
import time

from lib import remoting

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids):
    """User and system time of these processes so far."""
    total = 0.0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def memory(pids):
    """(RSS, RssAnon) of these processes in MB: all resident pages, and those that no file backs."""
    totals = {"VmRSS": 0, "RssAnon": 0}
    for pid in pids:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                name, _, value = line.partition(":")
                if name in totals:
                    totals[name] += int(value.split()[0])
    return totals["VmRSS"] / 1024, totals["RssAnon"] / 1024


def first_send(server, launch, limit=300.0):
    """Seconds from the launch until the broker accepted a message, and until the name server had its route."""
    begin = time.time()
    launch()
    accepted = None
    while accepted is None:
        dead = [p for p in server.processes if p.poll() is not None]
        if dead or time.time() - begin > limit:
            raise RuntimeError(f"{server.kind} took no message within {time.time() - begin:.0f} s of its start")
        try:
            with remoting.Connection(server.broker, timeout=2.0) as c:
                while accepted is None:
                    if c.send("TBW102-start", 0, b"first")[0] == 0:
                        accepted = time.time() - begin
                    else:
                        time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
    while not remoting.has_route(server.namesrv, "TBW102-start"):
        if time.time() - begin > limit:
            raise RuntimeError(f"{server.kind}: no route at the name server {limit:.0f} s after its start")
        time.sleep(0.005)
    return accepted, time.time() - begin


class Tool:
    """`apogee bench`, which loads both kinds of server."""

    def __init__(self, binary):
        self.binary = binary
        self.known = {}

    def knows(self, command, option):
        if command not in self.known:
            shown = subprocess.run([self.binary, "bench", command, "--help"], capture_output=True, text=True)
            self.known[command] = shown.stdout + shown.stderr
        return option in self.known[command]

    def run(self, command, server, limit, **options):
        """One run; its JSON, with the server's processor time added as cpu and cpu_per_million."""
        words = [str(self.binary), "bench", command, "--namesrv", server.namesrv, "--json"]
        for name, value in options.items():
            option = "--" + name.replace("_", "-")
            if value is not None and self.knows(command, option):
                words += [option, str(value)]
        os.sync()  # what an earlier load left in the page cache shall not slow this one
        before = cpu_seconds(server.pids())
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit)
        after = cpu_seconds(server.pids())
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words[1:])} exited {done.returncode}: {done.stderr.strip()[-500:]}")
        result = json.loads(done.stdout[done.stdout.index("{") :])
        result["cpu"] = after - before
        if result.get("messages"):
            result["cpu_per_million"] = result["cpu"] * 1e6 / result["messages"]
        return result


def idle_cpu(server, seconds):
    """Percent of one processor that the server uses while nobody talks to it."""
    before = cpu_seconds(server.pids())
    time.sleep(seconds)
    return (cpu_seconds(server.pids()) - before) * 100 / seconds


def median(values):
    values = [v for v in values if v is not None]
    return statistics.median(values) if values else None


def machine():
    """One line about the machine."""
    model = platform.machine()
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as f:
        gib = int(f.readline().split()[1]) / 1024 / 1024
    return f"{os.cpu_count()} processors ({model}), {gib:.0f} GiB memory, Linux {platform.release()}"


def revision(folder):
    """The commit that is compared, marked when the work tree differs from it."""
    described = version(["git", "-C", str(folder), "describe", "--always", "--dirty"])
    return f"ApogeeMQ at {described}"


def version(words):
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        return "unknown"
    text = (done.stdout + done.stderr).strip()
    return text.splitlines()[0] if text else "unknown"
