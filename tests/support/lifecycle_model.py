"""What the store should hold, moved by the table of `readie_wire.lifecycle` alone. Pure."""

from dataclasses import dataclass, field

from readie_infra.store import Offer
from readie_wire.lifecycle import HELD, TERMINAL, TRANSITIONS, State, Transition, next_state

TOKENS = ("alice", "bob")
WINDOW = 8  # entries of one stream that a take looks at
MAX_LEASES = 3


@dataclass
class ModelCall:
    call_id: str
    token: str
    memory: int
    exposed: bool
    pinned: bool
    session: str = ""
    reruns: int = 0
    reran: bool = False
    state: State = State.QUEUED
    owner: str = ""
    attempt: int = 0
    cancel: bool = False
    overdue: bool = False
    events: list[str] = field(default_factory=lambda: ["accepted"])

    def may(self, transition: Transition) -> bool:
        return (self.state, transition) in TRANSITIONS

    def move(self, transition: Transition) -> None:
        self.state = next_state(self.state, transition)
        if self.state in TERMINAL:
            self.events.append("result")


@dataclass
class ModelSession:
    session_id: str
    token: str
    worker: str = ""
    current: str = ""
    served: int = 0
    line: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def idle(self) -> bool:
        return not self.ended and not self.current and not self.line


class Model:
    """Calls, the two queues of each token, and sessions with their lines."""

    def __init__(self) -> None:
        self.calls: dict[str, ModelCall] = {}
        self.sessions: dict[str, ModelSession] = {}
        self.back: dict[str, list[str]] = {token: [] for token in TOKENS}
        self.queue: dict[str, list[str]] = {token: [] for token in TOKENS}

    def add(self, call: ModelCall) -> None:
        self.calls[call.call_id] = call
        if call.session:
            session = self.sessions[call.session]
            session.line.append(call.call_id)
            self.advance(session)
        else:
            self.queue[call.token].append(call.call_id)

    def in_state(self, *states: State) -> list[str]:
        return [call.call_id for call in self.calls.values() if call.state in states]

    def unqueue(self, call: ModelCall) -> None:
        lines = [self.back[call.token], self.queue[call.token]]
        if call.session:
            lines.append(self.sessions[call.session].line)
        for line in lines:
            if call.call_id in line:
                line.remove(call.call_id)

    def end(self, call: ModelCall, transition: Transition, *, with_session: bool = False) -> None:
        """The call's end, and with it that of its session, or the next call's turn in that."""
        call.overdue = False
        self.unqueue(call)
        session = self.sessions.get(call.session)
        if session is not None and with_session:
            if session.current == call.call_id:
                session.current = ""
            self.end_session(session)
        started = call.state is State.RUNNING
        call.move(transition)
        if session is not None:
            session.served += started
            if session.current == call.call_id:
                session.current = ""
            self.advance(session)

    def end_session(self, session: ModelSession) -> None:
        if session.ended:
            return
        session.ended = True
        current = self.calls.get(session.current)
        if current is not None and current.state in {State.QUEUED, State.LEASED}:
            self.end(current, Transition.FAIL)
        for call_id in list(session.line):
            self.end(self.calls[call_id], Transition.FAIL)

    def advance(self, session: ModelSession) -> None:
        if session.ended or session.current or session.worker or not session.line:
            return
        session.current = session.line.pop(0)
        self.queue[session.token].append(session.current)

    def run_again(self, call: ModelCall) -> bool:
        """Whether a run that came to nothing is repeated; then the call is first in its line."""
        if call.reruns < 1 or call.cancel or call.session:
            return False
        call.reruns -= 1
        call.reran = True
        call.move(Transition.RETRY if call.state is State.RUNNING else Transition.RELEASE)
        call.overdue = False
        call.owner = ""
        self.back[call.token].append(call.call_id)
        return True

    def hand_back(self, call: ModelCall) -> None:
        call.move(Transition.RELEASE)
        call.overdue = False
        call.owner = ""
        session = self.sessions.get(call.session)
        if session is not None:
            if session.served:
                return  # it waits for its worker
            session.worker = ""
        self.back[call.token].append(call.call_id)

    def sweep(self) -> tuple[set[str], set[str]]:
        """Time is over for what is overdue, in the order of ids. Answers those ended and requeued."""
        ended, requeued = set(), set()
        for call_id in sorted(call.call_id for call in self.calls.values() if call.overdue):
            call = self.calls[call_id]
            if call.state in TERMINAL:
                continue  # it ended with its session
            if call.state is State.LEASED and call.attempt < MAX_LEASES:
                requeued.add(call_id)
                self.hand_back(call)
                continue
            ended.add(call_id)
            if call.state is State.QUEUED:
                self.end(call, Transition.EXPIRE)
            elif call.cancel:
                self.end(call, Transition.CANCEL, with_session=True)
            elif call.state is State.LEASED and not call.session:
                self.end(call, Transition.PARK)
            else:
                self.lose(call, with_session=True)
        return ended, requeued

    def lose(self, call: ModelCall, *, with_session: bool = False) -> None:
        transition = Transition.PARK if call.reran else Transition.LOSE
        self.end(call, transition, with_session=with_session)

    def leave(self, worker: str) -> tuple[set[str], set[str]]:
        """A worker is gone. Answers the calls requeued and those lost."""
        for session in self.sessions.values():
            if session.ended or session.worker != worker:
                continue
            current = self.calls.get(session.current)
            if session.served or (current is not None and current.state is State.RUNNING):
                self.end_session(session)
            elif current is None:
                session.worker = ""
                self.advance(session)
        requeued, lost = set(), set()
        for call in self.calls.values():
            if call.owner != worker or call.state not in HELD:
                continue
            if call.state is State.LEASED:
                requeued.add(call.call_id)
                self.hand_back(call)
            elif self.run_again(call):
                requeued.add(call.call_id)
            else:
                lost.add(call.call_id)
                self.lose(call)
        return requeued, lost

    def first_that_fits(self, token: str, offer: Offer) -> ModelCall | None:
        for call_id in [*self.back[token][:WINDOW], *self.queue[token][:WINDOW]]:
            call = self.calls[call_id]
            fits = call.memory <= offer.memory_free and (offer.exposed_ok or not call.exposed)
            if fits and not call.overdue:
                return call
        return None

    def next_of_session(self, session: ModelSession, worker: str) -> ModelCall | None:
        if session.ended or session.worker != worker:
            return None
        if session.current:
            call = self.calls[session.current]
            waits = call.call_id not in self.back[call.token] + self.queue[call.token]
            return call if call.state is State.QUEUED and waits else None
        return self.calls[session.line[0]] if session.line else None
