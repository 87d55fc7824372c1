"""What holds for every test: hypothesis without wall-clock deadlines, no silent skips on CI, and a
home of their own for the commands that tests run."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests import skip_guard

settings.register_profile("turnkeeper", deadline=None, print_blob=True)
settings.load_profile("turnkeeper")


def pytest_configure(config: pytest.Config) -> None:
    _give_home()
    skip_guard.install_from_environment(config, Path(__file__).with_name("allowed_skips.txt"))


def _give_home() -> None:
    """No command of a test meets a Turnkeeper, or a configuration, of whoever runs the tests."""
    named = ("TURNKEEPER_URL", "TURNKEEPER_TOKEN", "TURNKEEPER_CONFIG")
    for name in [name for name in os.environ if name in named or name.startswith("TURNKEEPER__")]:
        del os.environ[name]
    home = tempfile.mkdtemp(prefix="turnkeeper-tests-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["XDG_DATA_HOME"] = f"{home}/data"
    os.environ["XDG_CONFIG_HOME"] = f"{home}/config"
