"""What holds for every test: hypothesis without wall-clock deadlines, and no silent skips on CI."""

from pathlib import Path

import pytest
from hypothesis import settings

from tests import skip_guard

settings.register_profile("turnkeeper", deadline=None, print_blob=True)
settings.load_profile("turnkeeper")


def pytest_configure(config: pytest.Config) -> None:
    skip_guard.install_from_environment(config, Path(__file__).with_name("allowed_skips.txt"))
