"""Three hosts in network namespaces: a client, a NAT that can be made to forget, and a server.

Needs root and Debian's iproute2, nftables and conntrack. Everything that it makes is removed when
its block ends. Addresses are of the ranges set aside for documentation; nothing leaves the machine.
"""

import itertools
import json
import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CLIENT_IP, NAT_INSIDE_IP = "192.0.2.2", "192.0.2.1"
SERVER_IP, NAT_OUTSIDE_IP = "198.51.100.2", "198.51.100.1"
REPO = Path(__file__).resolve().parents[2]
TOOLS = ("ip", "nft", "conntrack")

# Replies of flows that it knows pass, new flows begin with a SYN, and all else is dropped without a
# word, as home routers and cloud NATs do.
RULES = """
table inet nat_lab {
    counter dropped { }
    chain forward {
        type filter hook forward priority 0; policy drop;
        ct state established,related accept
        iifname "inside" tcp flags & (syn | ack | rst) == syn ct state new accept
        counter name dropped drop
    }
    chain postrouting {
        type nat hook postrouting priority 100;
        oifname "outside" masquerade
    }
}
"""
ONE_WAY = 'insert rule inet nat_lab forward iifname "outside" counter name dropped drop'

_numbers = itertools.count()


def missing() -> str:
    """Why the lab cannot be built here; empty if it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "needs root to make network namespaces"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"needs {', '.join(absent)}: apt-get install iproute2 nftables conntrack" * bool(absent)


def command(*words: str, given: str | None = None) -> str:
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """One namespace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._programs: list[subprocess.Popen[str]] = []
        command("ip", "netns", "add", name)
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *words: str, given: str | None = None) -> str:
        return command("ip", "netns", "exec", self.name, *words, given=given)

    def set(self, key: str, value: str) -> None:
        self.run("sh", "-c", f"echo {value} > /proc/sys/net/{key}")

    def start(self, module: str, *arguments: str) -> "Program":
        words = ["ip", "netns", "exec", self.name, sys.executable, "-m", module, *arguments]
        pipe = subprocess.PIPE
        process = subprocess.Popen(words, cwd=REPO, stdin=pipe, stdout=pipe, text=True)
        self._programs.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        return Program(process.stdin, process.stdout)

    def remove(self) -> None:
        for process in self._programs:
            process.kill()
            process.wait(10)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
        command("ip", "netns", "del", self.name)


@dataclass
class Program:
    """A program in a namespace, which is told and tells one JSON value a line."""

    stdin: IO[str]
    stdout: IO[str]

    def tell(self, value: object) -> None:
        self.stdin.write(json.dumps(value) + "\n")
        self.stdin.flush()

    def hear(self) -> Any:
        line = self.stdout.readline()
        assert line, "the program ended"
        return json.loads(line)

    def is_heard_within(self, patience_s: float) -> bool:
        return bool(select.select([self.stdout], [], [], patience_s)[0])

    def ask(self, value: object) -> Any:
        self.tell(value)
        return self.hear()


@dataclass
class Lab:
    client: Host
    nat: Host
    server: Host

    def forget(self) -> None:
        """The NAT's table is empty, as after a reboot or a failover."""
        self.nat.run("conntrack", "-F")

    def forget_after(self, idle_s: int) -> None:
        self.nat.set("netfilter/nf_conntrack_tcp_timeout_established", str(idle_s))

    def flows(self) -> int:
        return len(self.nat.run("conntrack", "-L", "-p", "tcp").splitlines())

    def drop_replies(self) -> None:
        self.nat.run("nft", ONE_WAY)

    def dropped(self) -> int:
        listed = self.nat.run("nft", "list", "counter", "inet", "nat_lab", "dropped")
        found = re.search(r"packets (\d+)", listed)
        assert found, listed
        return int(found.group(1))


@contextmanager
def lab() -> Iterator[Lab]:
    prefix = f"tk{os.getpid()}-{next(_numbers)}"
    hosts: list[Host] = []
    try:
        for part in ("client", "nat", "server"):
            hosts.append(Host(f"{prefix}-{part}"))
        built = Lab(*hosts)
        _connect(built.client, "eth0", CLIENT_IP, built.nat, "inside", NAT_INSIDE_IP)
        _connect(built.server, "eth0", SERVER_IP, built.nat, "outside", NAT_OUTSIDE_IP)
        built.client.run("ip", "route", "add", "default", "via", NAT_INSIDE_IP)
        built.nat.set("ipv4/ip_forward", "1")
        built.nat.run("nft", "-f", "-", given=RULES)
        built.nat.set("netfilter/nf_conntrack_tcp_loose", "0")
        yield built
    finally:
        for host in hosts:
            host.remove()


def _connect(a: Host, a_link: str, a_ip: str, b: Host, b_link: str, b_ip: str) -> None:
    peer = ["peer", "name", b_link, "netns", b.name]
    command("ip", "link", "add", a_link, "netns", a.name, "type", "veth", *peer)
    for host, link, address in ((a, a_link, a_ip), (b, b_link, b_ip)):
        host.run("ip", "addr", "add", f"{address}/24", "dev", link)
        host.run("ip", "link", "set", link, "up")
