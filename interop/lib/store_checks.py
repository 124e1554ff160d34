SUITES = {}
def run(kind, home, report):
    pass
