"""What the checks in Python share: what does not hold is printed and counted, and the check goes on."""

import os

failed = []  # what did not hold


def check(holds, what):
    if not holds:
        failed.append(what)
        print('FAILED:', what)


def processes_of(session):
    """Those of a session that have not ended."""
    found = []
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        try:
            with open(f'/proc/{entry}/stat', encoding='utf-8') as file:
                state, _, _, of = file.read().rpartition(')')[2].split()[:4]
        except OSError:
            continue
        if int(of) == session and state != 'Z':
            found.append(int(entry))
    return found
