"""The kinds of runs of the simulator, by the names of the options that choose them."""

from __future__ import annotations

from tests.simulation.calls_run import CallsRun
from tests.simulation.handovers_run import HandoversRun
from tests.simulation.members_run import MembersRun
from tests.simulation.mixed import MixedRun
from tests.simulation.rolling import RollingRun
from tests.simulation.run import Run
from tests.simulation.users_run import UsersRun


def kind_of(mixed: bool, calls: bool, users: bool, handovers: bool, rolling: bool, members: bool) -> type[Run]:
    """The one that is chosen; the ordinary one if none is."""
    kinds: tuple[tuple[bool, type[Run]], ...] = (
        (mixed, MixedRun),
        (calls, CallsRun),
        (users, UsersRun),
        (handovers, HandoversRun),
        (rolling, RollingRun),
        (members, MembersRun),
    )
    return next((kind for chosen, kind in kinds if chosen), Run)
