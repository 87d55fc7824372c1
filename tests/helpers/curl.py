"""A stand-in for `curl`, for machines without one: the options that documents use, and no others.

`python -m tests.helpers.curl` is the program. It is used only where no curl takes `--json` (7.82).
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

REPO = Path(__file__).resolve().parents[2]
TOOK_TOO_LONG = 28


def curl_on_path(path: str, folder: Path) -> str:
    """The path of programs, with a curl on it that can do what documents show."""
    found = shutil.which("curl", path=path)
    if found and not os.environ.get("WALK_WITHOUT_CURL") and _takes_json(found):
        return path
    folder.mkdir(exist_ok=True)
    program = folder / "curl"
    command = shlex.join([sys.executable, "-m", "tests.helpers.curl"])
    program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPO))} exec {command} "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{path}"


def _takes_json(curl: str) -> bool:
    told = subprocess.run([curl, "--help", "all"], capture_output=True, text=True, timeout=60)
    return "--json" in told.stdout


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    options = argparse.ArgumentParser("curl", allow_abbrev=False)
    options.add_argument("-s", "--silent", action="store_true")
    options.add_argument("-i", "--include", action="store_true")
    options.add_argument("-N", "--no-buffer", action="store_true")
    options.add_argument("-K", "--config", type=Path)
    options.add_argument("-H", "--header", action="append", default=[])
    options.add_argument("-X", "--request")
    options.add_argument("-w", "--write-out", default="")
    options.add_argument("--max-time", type=float, default=600.0)
    options.add_argument("--json")
    options.add_argument("url")
    return options


def _from_file(path: Path) -> list[str]:
    """What a file of options says: `name` or `name = "value"`, one a line."""
    found = []
    for line in path.read_text().splitlines():
        name, _, value = (part.strip() for part in line.partition("="))
        found += [f"--{name}", *([re.sub(r"\\n", "\n", value.strip('"'))] if value else [])]
    return found


def main(arguments: list[str]) -> int:
    options = parser()
    given = options.parse_args(arguments)
    if given.config is not None:
        given = options.parse_args([*_from_file(given.config), *arguments])
    headers = dict(header.split(": ", 1) for header in given.header)
    body = None if given.json is None else given.json.encode()
    if body is not None:
        headers |= {"Content-Type": "application/json", "Accept": "application/json"}
    where = urlsplit(given.url)
    link = http.client.HTTPConnection(where.netloc, timeout=given.max_time)
    try:
        method = given.request or ("GET" if body is None else "POST")
        link.request(
            method, (where.path or "/") + ("?" + where.query) * bool(where.query), body, headers
        )
        return _tell(
            link.getresponse(), include=given.include, until=time.monotonic() + given.max_time
        )
    finally:
        link.close()
        sys.stdout.write(given.write_out.replace("\\n", "\n"))


def _tell(answer: http.client.HTTPResponse, *, include: bool, until: float) -> int:
    if include:
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [f"{name}: {value}" for name, value in answer.getheaders()]
        print("\r\n".join(lines), end="\r\n\r\n")
    try:
        while chunk := answer.read1(65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
            if time.monotonic() > until:
                return TOOK_TOO_LONG
    except TimeoutError:
        return TOOK_TOO_LONG
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except ConnectionError as fault:
        print(f"curl: (7) {fault}", file=sys.stderr)
        sys.exit(7)
