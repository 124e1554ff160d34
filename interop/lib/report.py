"""Results: one line each as they come, a summary, a JUnit file.

Owns nothing but the list of results. Not thread-safe: the runner reports from one thread.
"""

import fnmatch
import sys
import time
from xml.sax.saxutils import quoteattr


class Report:
    def __init__(self, only):
        self.only = only
        self.results = []
        self.begin = time.time()

    def wants(self, suite, name):
        """True when no --only was given, or one of them names the suite, the scenario, or both by a pattern."""
        if not self.only:
            return True
        full = f"{suite}/{name}"
        return any(
            pattern in (suite, name) or fnmatch.fnmatch(full, pattern) or fnmatch.fnmatch(name, pattern)
            for pattern in self.only
        )

    def wants_suite(self, suite, names):
        return any(self.wants(suite, name) for name in names)

    def add(self, suite, name, result, seconds, text=""):
        """result is ok, FAIL or skipped."""
        self.results.append((suite, name, result, seconds, text))
        note = f"  {text}" if text else ""
        print(f"{result:<8}{suite + '/' + name:<42}{seconds:7.1f} s{note}", flush=True)

    def skip(self, suite, name, reason):
        self.add(suite, name, "skipped", 0.0, reason)

    def count(self, result):
        return sum(1 for r in self.results if r[2] == result)

    def failed(self):
        return self.count("FAIL") > 0

    def summary(self, server):
        ok, fail, skipped = (self.count(r) for r in ("ok", "FAIL", "skipped"))
        print(f"\n{ok} ok, {fail} failed, {skipped} skipped against {server} in {time.time() - self.begin:.0f} s")
        for suite, name, result, _, text in self.results:
            if result == "FAIL":
                print(f"  FAIL {suite}/{name}: {text}")
        reasons = {}
        for suite, name, result, _, text in self.results:
            if result == "skipped":
                reasons.setdefault(text, []).append(f"{suite}/{name}")
        for reason, names in reasons.items():
            print(f"  skipped ({reason}): {', '.join(names)}")
        sys.stdout.flush()

    def junit(self, path):
        total = sum(r[3] for r in self.results)
        with open(path, "w", encoding="utf-8") as f:
            f.write('<?xml version="1.0" encoding="UTF-8"?>\n')
            f.write(
                f'<testsuite name="interop" tests="{len(self.results)}" failures="{self.count("FAIL")}" '
                f'skipped="{self.count("skipped")}" time="{total:.1f}">\n'
            )
            for suite, name, result, seconds, text in self.results:
                f.write(f"  <testcase classname={quoteattr(suite)} name={quoteattr(name)} time=\"{seconds:.1f}\">")
                if result == "FAIL":
                    f.write(f"<failure message={quoteattr(text)}/>")
                elif result == "skipped":
                    f.write(f"<skipped message={quoteattr(text)}/>")
                f.write("</testcase>\n")
            f.write("</testsuite>\n")
