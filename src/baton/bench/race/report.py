"""placeholder"""


def write_race_report(path, result):
    pass
