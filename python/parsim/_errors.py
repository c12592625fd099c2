"""What parsim raises."""


class InputError(ValueError):
    """The caller can fix it: where the command line would end with exit code 2.

    where     the keyword as the command line has it ("--batch"), or file, line and key
    found     what stands there
    accepted  what would be right, with a "did you mean" if there is one; may be empty
    """

    def __init__(self, where, found, accepted=''):
        self.where, self.found, self.accepted = where, found, accepted
        super().__init__(where, found, accepted)

    def __str__(self):
        return f'{self.where}: {self.found}' + (f'; {self.accepted}' if self.accepted else '')


class UnknownKeyword(InputError, TypeError):
    """A function has no keyword of this name."""


class SimulationError(RuntimeError):
    """The simulation could not finish; the message names the blocked operations."""
