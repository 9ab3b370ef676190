"""What a measurement has started ends with it."""

from __future__ import annotations

import signal
import subprocess
import sys

STARTS_SOMETHING = """
from time import sleep
from python_tests.processes import end_on_sigterm
end_on_sigterm()
try:
    print("started", flush=True)
    sleep(60)
finally:
    print("ended", flush=True)
"""


def test_sigterm_lets_a_process_end_what_it_started() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_SOMETHING], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[0] == "ended\n"
        assert process.returncode == 128 + signal.SIGTERM
