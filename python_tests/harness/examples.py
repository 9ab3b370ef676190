"""The examples of a page, as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def examples_of(page: Path) -> list[str]:
    """Its blocks of Python, in order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def run_example(text: str, changes: Mapping[str, str]) -> str:
    """What it prints, with these changes to where it runs, each of which must be there. It must end well."""
    code = text
    for old, new in changes.items():
        assert old in text, f"{old} is not in the example"
        code = code.replace(old, new)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    return done.stdout
