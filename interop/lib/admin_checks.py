NAMES = []
def run(admin, server, report, names):
    pass
