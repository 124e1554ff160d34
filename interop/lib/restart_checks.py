"""The server restarts under its clients: after a clean stop, and after kill -9. Nothing acknowledged may be lost."""

import time

from . import drivers, servers, toolchain

SUITE = "restart"
CLIENTS = ["java5", "java49", "java32"]
NAMES = [f"{client}-{how}" for client in CLIENTS for how in ("clean", "kill")]


def run(kind, home, report):
    names = [n for n in NAMES if report.wants(SUITE, n)]
    if not names:
        return
    server = servers.make(kind, home / "restart")
    prefix = f"r{int(time.time()) % 100000}"
    begin = time.time()
    try:
        server.start()
        for how in ("clean", "kill"):
            begin = time.time()
            restart(server, home, report, prefix, how, [n for n in names if n.endswith(how)])
    except (RuntimeError, OSError) as e:
        report.add(SUITE, "server", "FAIL", time.time() - begin, " ".join(str(e).split())[:600])
    finally:
        server.stop(kill=True)


def restart(server, home, report, prefix, how, names):
    """All clients live through the same restart."""
    running = []
    until = home / f"restarted-{how}"
    for name in names:
        client = name.split("-")[0]
        try:
            command = drivers.java_command(toolchain.driver(client), home, "interop.Main", server.namesrv, "-",
                                           heap="128m")  # fmt: skip
        except toolchain.Missing as e:
            report.skip(SUITE, name, str(e))
            continue
        driver = drivers.Driver(SUITE, command, home, home / f"{name}.log")
        driver.submit(f"survive:{name}", prefix=f"{prefix}{client}", label=how, until=until)
        running.append(driver)
    if running:
        time.sleep(8)  # all are sending and receiving by now
        server.stop(kill=how == "kill")
        time.sleep(1)
        server.start()
        time.sleep(5)
        until.touch()
    for driver in running:
        driver.collect(report, 150)
        driver.close()
