"""Scenarios that the original passes and ours cannot yet, because the part is not in this release.

With ours as the server they are skipped with the reason; `run --pending` runs them anyway. A line goes when its
part is there.
"""

PENDING = {
}


def reason(kind, name, run_anyway):
    """Why this scenario is left out against this kind of server; None when it is to run."""
    return None if run_anyway or kind != "apogee" else PENDING.get(name)
