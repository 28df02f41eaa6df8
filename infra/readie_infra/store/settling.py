"""Whether time may end what workers hold: not right after a time in which nobody could say anything."""

JUMP_S = 5.0  # a clock that is set by less harms nobody: it is within every grace


class Calm:
    """The server was there, and its clock went evenly, for ``settle_s`` seconds.

    After an outage, or when the clock was set, times are over that nobody could keep. Workers then
    have ``settle_s`` seconds to store outcomes and to say what they hold.
    """

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._connection = -1
        self._ahead = 0.0  # of our clock, which has another zero
        self._since = 0.0

    def lasts(self, server_s: float, connection: int, now: float) -> bool:
        """Look at the server's clock. ``now`` is monotonic; ``connection`` numbers the connection."""
        ahead = server_s - now
        if connection != self._connection or abs(ahead - self._ahead) > JUMP_S:
            self._since = now
        self._connection, self._ahead = connection, ahead
        return now - self._since >= self._settle_s
