"""The real programs: what to start, and how each is pointed to the scripted model and kept quiet.

Decides the argv, the environment and the settings files of each program, so that it starts without
questions, reports to nobody, looks for no update, and finds its model on loopback. It must not know
what is then said to it. All of it was found by running them on a network of nothing but loopback.
"""

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.agents.install import Package, node, read_versions

Driver = Literal["claude", "codex", "acp"]
KEY = "sk-scripted"
MODEL = "scripted"
CODEX_MODEL = "gpt-5.5"
"""One that it knows: codex-acp says a warning, as if it were the answer, for any other."""


@dataclass(frozen=True)
class Launch:
    """Everything needed to start a program for a test."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """On top of PATH and the like; HOME is a fresh folder."""


@dataclass(frozen=True)
class Program:
    """A real agent. `prepare(home, model_url)` writes its settings under `home`."""

    name: str
    driver: Driver
    package: Package
    prepare: Callable[[Path, str], Launch]
    asking: Callable[[str], str]
    """A message that makes its model run a command for which it asks for leave first."""

    @property
    def version(self) -> str:
        return self.package.version

    @property
    def is_installed(self) -> bool:
        return self.package.folder.exists()


def _machine() -> str:
    """As npm packages name it: linux-x64, darwin-arm64."""
    arch = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-{arch}"


def _folder(name: str) -> Path:
    return read_versions().packages[name].folder


def _module(name: str, path: str) -> Path:
    return _folder(name) / "node_modules" / path


def asks_by_itself(command: str) -> str:
    """It asks for every command that does more than read."""
    return f"tool bash {command}"


# Claude Code --------------------------------------------------------------------------------

CLAUDE_ARGUMENTS = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json"),
    *("--verbose", "--include-partial-messages", "--permission-prompt-tool", "stdio"),
)


def _claude_env(home: Path, model_url: str) -> dict[str, str]:
    return {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }


def _claude(home: Path, model_url: str) -> Launch:
    binary = _folder("claude") / "claude_agent_sdk" / "_bundled" / "claude"
    return Launch((str(binary), *CLAUDE_ARGUMENTS), _claude_env(home, model_url))


def _claude_old(home: Path, model_url: str) -> Launch:
    binary = _module("claude-old", f"@anthropic-ai/claude-code-{_machine()}/claude")
    return Launch((str(binary), *CLAUDE_ARGUMENTS), _claude_env(home, model_url))


def _claude_agent_acp(home: Path, model_url: str) -> Launch:
    entry = _module("claude-agent-acp", "@agentclientprotocol/claude-agent-acp/dist/index.js")
    return Launch((str(node()), str(entry)), _claude_env(home, model_url))


# Codex --------------------------------------------------------------------------------------

CODEX_SETTINGS = """\
model = "{model}"
model_provider = "scripted"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_API_KEY"
request_max_retries = 1
stream_max_retries = 1
"""


def _codex_env(home: Path, model_url: str) -> dict[str, str]:
    settings = home / ".codex"
    settings.mkdir(exist_ok=True)
    text = CODEX_SETTINGS.format(url=model_url, model=CODEX_MODEL)
    (settings / "config.toml").write_text(text, encoding="utf-8")
    return {"HOME": str(home), "CODEX_HOME": str(settings), "SCRIPTED_API_KEY": KEY}


def asks_to_leave_its_sandbox(command: str) -> str:
    """Codex runs commands in its sandbox unasked, and asks to run one outside of it."""
    given = {
        "cmd": command,
        "sandbox_permissions": "require_escalated",
        "justification": "scripted",
    }
    return f"call exec_command {json.dumps(given)}"


def _codex(home: Path, model_url: str) -> Launch:
    entry = _module("codex", "@openai/codex/bin/codex.js")
    return Launch((str(node()), str(entry), "app-server"), _codex_env(home, model_url))


def _codex_acp(home: Path, model_url: str) -> Launch:
    entry = _module("codex-acp", "@zed-industries/codex-acp/bin/codex-acp.js")
    return Launch((str(node()), str(entry)), _codex_env(home, model_url))


# Others that speak ACP ----------------------------------------------------------------------


def _gemini(home: Path, model_url: str) -> Launch:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "model": {"name": "gemini-2.5-flash"},
    }
    folder = home / ".gemini"
    folder.mkdir(exist_ok=True)
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    env = {
        "HOME": str(home),
        "GEMINI_API_KEY": KEY,
        "GOOGLE_GEMINI_BASE_URL": model_url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    entry = _module("gemini", "@google/gemini-cli/bundle/gemini.js")
    return Launch((str(node()), str(entry), "--acp"), env)


def _opencode(home: Path, model_url: str) -> Launch:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{model_url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": MODEL, "tool_call": True}},
    }
    settings = {
        "model": f"scripted/{MODEL}",
        "small_model": f"scripted/{MODEL}",
        "provider": {"scripted": provider},
        "enabled_providers": ["scripted"],
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "ask"},
        "agent": {"title": {"disable": True}},
    }
    env = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }
    binary = _module("opencode", f"opencode-{_machine()}-baseline/bin/opencode")
    return Launch((str(binary), "acp"), env)


def _program(name: str, driver: Driver, prepare: Callable[[Path, str], Launch]) -> Program:
    asking = asks_to_leave_its_sandbox if name.startswith("codex") else asks_by_itself
    return Program(name, driver, read_versions().packages[name], prepare, asking)


PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        _program("claude", "claude", _claude),
        _program("claude-old", "claude", _claude_old),
        _program("codex", "codex", _codex),
        _program("claude-agent-acp", "acp", _claude_agent_acp),
        _program("codex-acp", "acp", _codex_acp),
        _program("gemini", "acp", _gemini),
        _program("opencode", "acp", _opencode),
    )
}
