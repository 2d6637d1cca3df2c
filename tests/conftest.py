"""What a failing test with real programs needs: their logs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Show what the programs said beside the failure."""
    from tests.support.programs import Programs  # after pytest-django has the settings

    report = yield
    if report.when == "call" and report.failed:
        for each in item.funcargs.values():  # type: ignore[attr-defined]
            started = getattr(each, "__self__", each)  # a fixture may hand out one of its methods
            if isinstance(started, Programs):
                report.sections += [(f"log of {program.name}", program.log) for program in started.made]
    return report
