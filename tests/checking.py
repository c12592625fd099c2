"""What the checks in Python share: what does not hold is printed and counted, and the check goes on."""

failed = []  # what did not hold


def check(holds, what):
    if not holds:
        failed.append(what)
        print('FAILED:', what)
