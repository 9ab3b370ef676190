"""The entry point of ``txha``. It imports no command before it is settled which core this process runs."""

from __future__ import annotations

import signal

from broker_plugin.compiled import use


def main() -> None:
    """Run the compiled core if there is one, then carry the command out."""
    use()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a supervisor may ignore it: no child could be waited for
    from broker_plugin.cli.commands import command_line

    command_line()


if __name__ == "__main__":
    main()
