"""The page of limits is true for ``broker_plugin.node``."""

from __future__ import annotations

from tests.docs import test_documents
from tests.support.limits import check


def test_every_number_and_its_value() -> None:
    check("broker_plugin.node")


def test_every_key_of_the_configuration_and_its_default() -> None:
    test_documents.test_every_key_and_its_default()
