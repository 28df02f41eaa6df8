"""The network of sandboxes: a namespace each, joined to the host by a pair of virtual interfaces.

Traffic leaves by address translation. Closed to sandboxes are the worker's own host, its networks,
the other sandboxes, and link-local addresses (where clouds keep credentials). Addresses come from a
pool, of which each worker of a machine takes a slice of its own.
"""

import contextlib
import ipaddress
import json
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from readie_worker.sandbox.errors import RuntimeUnavailableError, SandboxError
from readie_worker.sandbox.gvisor.commands import run

POOL = ipaddress.IPv4Network("10.203.0.0/16")
SLICE_BITS = 22  # 1,022 addresses, so 255 sandboxes at once, for each worker
LINK_BITS = 30  # host end, sandbox end
NETNS_FOLDER = Path("/run/netns")
COMMAND_DEADLINE_S = 20.0
MTU = 1400  # below any tunnel that the host may be in

_TABLE = "readie"  # readie_{owner}_{number of its slice}
_TRIES = 20  # to be alone with a slice of 64, however many workers of a machine start together
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_ROUTES = Path("/proc/net/route")
_RESOLVERS = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
LINK_LOCAL = "169.254.0.0/16"

# gVisor releases of 2024 take every namespace of a kernel from 6.11 on for the host's, since a file
# they look at is there in each (google/gvisor#10704). In a mount namespace of its own, made inside
# the network namespace, the file is hidden. `ip netns exec` would hide the cgroups as well.
_HIDING = 'mount -t tmpfs none /proc/sys/net/core && exec "$@"'


class NetworkError(SandboxError):
    """A command of the host's network failed; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Link:
    """One sandbox's network namespace, made and addressed. Used once: gVisor takes it over."""

    name: str
    slot: int

    @property
    def path(self) -> Path:
        return NETNS_FOLDER / self.name

    def entering(self) -> tuple[str, ...]:
        """What to put before each `runsc` command of the sandbox that has this network."""
        return (
            *("nsenter", f"--net={self.path}", "unshare", "--mount"),
            *("/bin/sh", "-c", _HIDING, "sh"),
        )


class SandboxNetwork:
    """The links of one worker. ``owner``: at most 6 letters, unique on the machine."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._slice = POOL
        self._table = ""
        self._free: list[int] = []
        self._surroundings: object = None  # for which the rules were made

    async def open(self) -> None:
        """Take a slice of the pool and set up translation and filters.

        Raises `RuntimeUnavailableError` with what is missing: never open without its filters.
        """
        tools = ("ip", "nft", "nsenter", "unshare")
        if missing := [tool for tool in tools if shutil.which(tool) is None]:
            raise RuntimeUnavailableError(_remedy(f"{', '.join(missing)} not installed"))
        try:
            _forward()
            for _ in range(_TRIES):
                if await self._take_slice():
                    return
            raise NetworkError("other workers take the same addresses at the same moment")
        except (NetworkError, OSError) as error:
            raise RuntimeUnavailableError(_remedy(str(error))) from error

    async def link(self) -> Link:
        """A new namespace with a way out. Raises `NetworkError`; nothing of it is left then."""
        if not self._free:
            raise NetworkError("all addresses of this worker's sandboxes are in use")
        link = Link(f"rd-{self._owner}-{self._free[-1]}", self._free.pop())
        outside, inside = self._addresses(link.slot)
        interface = self._interface(link.slot)
        try:
            if self._surroundings != _surroundings():
                await self._set_rules(await _own_networks())
            await _run("ip", "netns", "add", link.name)
            await _run_ip(
                f"link add {interface} mtu {MTU} type veth peer name eth0 mtu {MTU} "
                f"netns {link.name}",
                # No address by itself: the sandbox speaks IPv4 alone, as the filters expect.
                f"link set {interface} addrgenmode none",
                f"addr add {outside}/{LINK_BITS} dev {interface}",
                f"link set {interface} up",
            )
            await _run_ip(
                "link set lo up",
                "link set eth0 addrgenmode none",
                f"addr add {inside}/{LINK_BITS} dev eth0",
                "link set eth0 up",
                f"route add default via {outside}",
                netns=link.name,
            )
        except BaseException:
            await self.remove(link)
            raise
        return link

    async def remove(self, link: Link) -> None:
        """Its interfaces go with the namespace."""
        with contextlib.suppress(NetworkError):
            await _run("ip", "netns", "delete", link.name)
        # The namespace lives as long as a process that is just ending; the interface need not.
        with contextlib.suppress(NetworkError):
            await _run("ip", "link", "delete", self._interface(link.slot))
        self._free.insert(0, link.slot)

    async def close(self) -> None:
        await remove_leftovers(self._owner)

    async def _take_slice(self) -> bool:
        """Whether it is ours alone: another worker may have found it free at the same moment."""
        own = await _own_networks()
        number, self._slice = await _free_slice(own)
        self._table = f"{_TABLE}_{self._owner}_{number}"
        self._free = list(reversed(self._slots))
        await self._set_rules(own)
        # Its table is its claim. Whoever is second to make one sees the first.
        if [table for table in await _tables() if _number(table) == number] == [self._table]:
            return True
        await _run("nft", "delete", "table", "inet", self._table)
        return False

    async def _set_rules(self, own: Sequence[ipaddress.IPv4Network]) -> None:
        """All at once, in the place of those that there are. Raises `NetworkError`."""
        surroundings = _surroundings()
        await _run("nft", "-f", "-", stdin=self._rules(own))
        self._surroundings = surroundings

    @property
    def _slots(self) -> range:
        return range(1, self._slice.num_addresses >> (32 - LINK_BITS))

    def _addresses(self, slot: int) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
        base = self._slice.network_address + slot * (1 << (32 - LINK_BITS))
        return base + 1, base + 2

    def _interface(self, slot: int) -> str:
        return f"rd{self._owner}{slot}"

    def _rules(self, own: Sequence[ipaddress.IPv4Network]) -> str:
        ours = f'iifname "rd{self._owner}*"'
        apart = ipaddress.collapse_addresses([ipaddress.IPv4Network(LINK_LOCAL), POOL, *own])
        closed = ", ".join(map(str, apart))
        servers = ", ".join(name_servers()) or "0.0.0.0"  # noqa: S104 - matches no destination
        # In a user namespace code may write packets by itself, so it could name another as sender.
        senders = ", ".join(
            f'"{self._interface(slot)}" . {self._addresses(slot)[1]}' for slot in self._slots
        )
        return f"""
            table inet {self._table}
            delete table inet {self._table}
            table inet {self._table} {{
                chain input {{
                    type filter hook input priority -10;
                    {ours} reject with icmpx admin-prohibited
                }}
                chain forward {{
                    type filter hook forward priority -10;
                    {ours} meta nfproto != ipv4 drop
                    {ours} iifname . ip saddr != {{ {senders} }} drop
                    {ours} ip daddr {{ {servers} }} udp dport 53 accept
                    {ours} ip daddr {{ {servers} }} tcp dport 53 accept
                    {ours} ip daddr {{ {closed} }} reject with icmpx admin-prohibited
                    oifname "rd{self._owner}*" ct state established,related accept
                    oifname "rd{self._owner}*" drop
                }}
                chain out {{
                    type nat hook postrouting priority 100;
                    ip saddr {self._slice} oifname != "rd{self._owner}*" masquerade
                }}
            }}
        """


async def remove_leftovers(owner: str) -> None:
    """Namespaces and rules of a worker, this one or one that is gone."""
    for name in _namespaces(f"rd-{owner}-*"):
        with contextlib.suppress(NetworkError):
            await _run("ip", "netns", "delete", name)
    with contextlib.suppress(NetworkError):
        for table in await _tables():
            if table.startswith(f"{_TABLE}_{owner}_"):
                await _run("nft", "delete", "table", "inet", table)


def name_servers() -> list[str]:
    """The host's IPv4 name servers of today that a sandbox can reach."""
    for path in _RESOLVERS:
        with contextlib.suppress(OSError):
            words = [line.split() for line in path.read_text().splitlines()]
            servers = [found[1] for found in words if found[:1] == ["nameserver"] and found[1:]]
            reachable = [server for server in servers if _is_elsewhere(server)]
            if reachable:
                return reachable
    return []


def resolver_file(network: str) -> str:
    """The content of a sandbox's `/etc/resolv.conf`: nothing to ask where there is no network."""
    if network == "none":
        return "# this sandbox has no network\n"
    return "".join(f"nameserver {server}\n" for server in name_servers())


def _forward() -> None:
    """Let this host pass on what comes from sandboxes; it stays so, as others may need it too.

    In a container the file cannot be written to; there whoever starts it sets the value.
    """
    if _FORWARDING.read_text().strip() != "1":
        _FORWARDING.write_text("1")


def _namespaces(pattern: str) -> list[str]:
    return [path.name for path in NETNS_FOLDER.glob(pattern)]


def _is_elsewhere(server: str) -> bool:
    """Not on the host's loopback, which is not the sandbox's."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(server)
        return address.version == 4 and not address.is_loopback
    return False


def _surroundings() -> object:
    """What the rules depend on, as cheap to look at as it can be: it is, for every sandbox.

    Networks come and go while a worker runs, and so do name servers.
    """
    routes = _ROUTES.read_text().splitlines()
    return [line for line in routes if not line.startswith("rd")], name_servers()


async def _own_networks() -> list[ipaddress.IPv4Network]:
    """What this host is directly in; what it reaches by a gateway is elsewhere."""
    routes = json.loads(await _run("ip", "-4", "-json", "route", "show", "table", "all"))
    direct = [route["dst"] for route in routes if "gateway" not in route]
    networks = {ipaddress.IPv4Network(name) for name in direct if name != "default"}
    return list(ipaddress.collapse_addresses(one for one in networks if not one.is_multicast))


async def _free_slice(
    routed: Sequence[ipaddress.IPv4Network],
) -> tuple[int, ipaddress.IPv4Network]:
    """One that no worker has, by the names of their tables, and that nobody routes.

    Any of them, so that two who look at the same moment rarely choose the same.
    """
    taken = {_number(table) for table in await _tables()}
    free = [
        (number, candidate)
        for number, candidate in enumerate(POOL.subnets(new_prefix=SLICE_BITS))
        if number not in taken and not any(candidate.overlaps(network) for network in routed)
    ]
    if not free:
        raise NetworkError(f"every part of {POOL} is in use already")
    return secrets.choice(free)


def _number(table: str) -> int:
    return int(table.rpartition("_")[2])


async def _tables() -> list[str]:
    printed = await _run("nft", "list", "tables", "inet")
    names = [line.split()[-1] for line in printed.splitlines() if line.strip()]
    return [name for name in names if name.startswith(f"{_TABLE}_")]


async def _run_ip(*lines: str, netns: str | None = None) -> None:
    """Several `ip` commands in one process, here or in a namespace."""
    where = () if netns is None else ("-netns", netns)
    await _run("ip", *where, "-batch", "-", stdin="".join(f"{line}\n" for line in lines))


async def _run(*command: str, stdin: str = "") -> str:
    try:
        done = await run(
            command, COMMAND_DEADLINE_S, text=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except TimeoutError as error:
        raise NetworkError(f"{' '.join(command)} took too long") from error
    except OSError as error:
        raise NetworkError(f"{command[0]} cannot be run: {error}") from error
    if done.code != 0:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _remedy(problem: str) -> str:
    return (
        f"the network of sandboxes cannot be set up: {problem}; run the worker as root with "
        "iproute2 and nftables (infra/gvisor/install brings them), or set READIE_NETWORK=none"
    )
