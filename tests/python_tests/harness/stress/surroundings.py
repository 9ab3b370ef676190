"""Running a test in a network and a table of mounts of its own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from python_tests.harness.stress.namespaces import own_surroundings, why_not


def in_own_surroundings(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test in a thread that shares neither network nor mounts with the rest, nor does what it starts."""

    @functools.wraps(test)
    def run(*arguments: object, **named: object) -> None:
        errors: list[BaseException] = []

        def enter() -> None:
            try:
                reason = why_not()
                assert reason is None, reason
                own_surroundings()
                test(*arguments, **named)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    return run
