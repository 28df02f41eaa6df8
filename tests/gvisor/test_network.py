"""What sandboxes can reach: the world beyond the worker, and nothing nearer."""

import asyncio
import dataclasses
import secrets
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from readie_worker.sandbox.api import Checkpoint, Network, SandboxSpec
from readie_worker.sandbox.errors import RuntimeUnavailableError, StartError
from readie_worker.sandbox.gvisor import network as networks
from support.executor_driver import driven
from support.gvisor_kit import GVisorKit
from support.outside_host import OutsideHost, outside_host
from support.requirements import require_part
from support.sandbox_kits import Bench, new_spec

OpenGVisor = Callable[..., Awaitable[Bench]]


@pytest.fixture(scope="module")
def outside(runsc: Path) -> Iterator[OutsideHost]:
    tools = shutil.which("ip") and shutil.which("nft")
    require_part("iproute2 and nftables", bool(tools), "infra/gvisor/install")
    with outside_host() as host:
        yield host


@pytest.fixture
async def networked(open_gvisor: OpenGVisor, outside: OutsideHost) -> Bench:
    return await open_gvisor(network="sandbox")


def spec(network: Network) -> SandboxSpec:
    return dataclasses.replace(new_spec(), network=network)


async def ask(
    bench: Bench,
    function: Any,
    *arguments: Any,
    network: Network = "sandbox",
    checkpoint: Checkpoint | None = None,
) -> Any:
    """What the function returns in a sandbox with that network."""
    runtime, given = bench.runtime, spec(network)
    starting = runtime.restore(checkpoint, given) if checkpoint else runtime.cold(given)
    sandbox = await starting
    try:
        async with driven(sandbox.connection, sandbox.stdout, sandbox.stderr) as driver:
            await driver.hello()
            return (await driver.call(function, *arguments)).value
    finally:
        await sandbox.destroy()


def reach(address: str, port: int) -> str:
    """What the other side says, or how the attempt ended."""
    import socket

    try:
        with socket.create_connection((address, port), timeout=20) as connection:
            return connection.recv(100).decode()
    except OSError as error:
        return type(error).__name__


async def test_the_world_is_reached_by_the_address_of_the_host(
    networked: Bench, outside: OutsideHost
) -> None:
    assert await ask(networked, reach, outside.address, outside.port) == outside.near


async def test_the_worker_itself_is_closed(networked: Bench, outside: OutsideHost) -> None:
    assert await ask(networked, reach, outside.near, outside.port) != outside.near


async def test_link_local_addresses_are_refused_at_once(networked: Bench) -> None:
    """Clouds keep a machine's credentials there."""
    found = await ask(networked, reach, "169.254.169.254", 80)

    assert found in ("ConnectionRefusedError", "PermissionError", "OSError")


async def test_there_is_no_way_around_the_filters_by_ipv6(networked: Bench) -> None:
    def addresses() -> list[str]:
        from pathlib import Path

        lines = Path("/proc/net/if_inet6").read_text().splitlines()
        return [line.split()[0] for line in lines if line.split()[-1] != "lo"]

    def reach_all_nodes() -> str:
        import socket

        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
                probe.connect(("ff02::1", 9, 0, 2))
                probe.send(b"x")
        except OSError as error:
            return type(error).__name__
        return "sent"

    assert await ask(networked, addresses) == []
    assert await ask(networked, reach_all_nodes) != "sent"


async def test_sandboxes_do_not_reach_each_other(networked: Bench) -> None:
    def own_address() -> str:
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("203.0.113.5", 9))
            return str(probe.getsockname()[0])

    def serve() -> None:
        import socket

        server = socket.create_server(("0.0.0.0", 8080))
        print(own_address(), flush=True)
        server.settimeout(60)
        connection, _ = server.accept()
        connection.sendall(b"reached")

    server = await networked.runtime.cold(spec("sandbox"))
    async with driven(server.connection, server.stdout, server.stderr) as driver:
        await driver.hello()
        serving = asyncio.create_task(driver.call(serve))
        await driver.printed(b"\n")
        address = bytes(driver._streams[0].data).decode().strip()
        assert address.startswith("10.203.")
        assert await ask(networked, reach, address, 8080) != "reached"
        await server.destroy()
        await serving


async def test_a_sandbox_sends_under_no_address_but_its_own(
    open_gvisor: OpenGVisor, outside: OutsideHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even to a name server, which it reaches before all that is closed."""

    def send(server: str, port: int, forged: list[str]) -> str:
        import ctypes
        import socket
        import struct

        # So that the way is known: what waits for it would be lost with the sandbox.
        with socket.create_connection((server, port), timeout=20) as way:
            way.recv(100)

        def packet(sender: str) -> bytes:
            said = f"as {sender}".encode()
            ends = socket.inet_aton(sender) + socket.inet_aton(server)
            udp = struct.pack("!HHHH", 53, 53, 8 + len(said), 0) + said
            size = 20 + len(udp)
            return struct.pack("!BBHHHBBH", 0x45, 0, size, 1, 0, 64, 17, 0) + ends + udp

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as honest:
            honest.connect((server, 53))
            ctypes.CDLL(None).unshare(0x10000000)  # a user namespace, with every capability
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
                for sender in forged:
                    raw.sendto(packet(sender), (server, 0))
            honest.send(b"honest")
            return str(honest.getsockname()[0])

    monkeypatch.setattr(networks, "name_servers", lambda: [outside.address])
    bench = await open_gvisor(network="sandbox")
    with outside.name_server() as asked:
        neighbour = "10.203.0.10"
        forged = ["192.0.2.77", outside.near, neighbour]
        own = await ask(bench, send, outside.address, outside.port, forged)
        assert own not in forged
        assert await asyncio.to_thread(asked.readline) == b"honest\n"


async def test_a_network_that_the_host_joins_is_closed_and_its_name_server_open(
    networked: Bench, outside: OutsideHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the worker runs, as with a container engine's network, or on another Wi-Fi."""

    def ask_name(server: str, port: int) -> str:
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(b"who is it?", (server, 53))
            return reach(server, port)  # which also waits until the question is on its way

    there = outside.address, outside.port
    assert await ask(networked, reach, *there) == outside.near
    monkeypatch.setattr(networks, "name_servers", lambda: [outside.address])
    with outside.name_server() as asked, outside.joined():
        assert await ask(networked, ask_name, *there) != outside.near
        assert await asyncio.to_thread(asked.readline) == b"who is it?\n"
    assert await ask(networked, reach, *there) == outside.near


async def test_a_checkpoint_without_network_is_restored_into_one(
    networked: Bench, outside: OutsideHost
) -> None:
    """Each time with another namespace and address."""
    checkpoint = await networked.checkpoint("decimal")

    for _ in range(2):
        found = await ask(networked, reach, outside.address, outside.port, checkpoint=checkpoint)
        assert found == outside.near


async def test_a_call_may_ask_for_no_network(networked: Bench, outside: OutsideHost) -> None:
    found = await ask(networked, reach, outside.address, outside.port, network="none")

    assert found == "OSError"


async def test_without_network_a_name_fails_at_once_and_in_words(bench: Bench) -> None:
    def resolve() -> tuple[str, float]:
        import os
        import socket
        import time

        os.environ["RES_OPTIONS"] = "timeout:30"  # for an answer, were one waited for
        begun = time.monotonic()
        try:
            socket.gethostbyname("example.com")
        except OSError as error:
            return type(error).__name__, time.monotonic() - begun
        return "resolved", 0.0

    name, seconds = await ask(bench, resolve, network="none")

    assert name == "gaierror"
    assert seconds < 30


async def test_name_servers_are_those_of_the_host_of_today_also_after_a_restore(
    networked: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolver() -> str:
        from pathlib import Path

        return Path("/etc/resolv.conf").read_text()

    checkpoint = await networked.checkpoint("decimal")
    monkeypatch.setattr(networks, "name_servers", lambda: ["203.0.113.53"])

    found = await ask(networked, resolver, checkpoint=checkpoint)

    assert found == "nameserver 203.0.113.53\n"


async def test_a_worker_without_network_starts_no_sandbox_that_wants_one(bench: Bench) -> None:
    with pytest.raises(StartError, match="was started with none"):
        await bench.runtime.cold(spec("sandbox"))


async def test_a_network_that_cannot_be_set_up_is_never_left_out_in_silence(
    open_gvisor: OpenGVisor, runsc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("mount", "umount", "sh", "ip"):
        (tools / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tools))

    with pytest.raises(RuntimeUnavailableError, match=r"nft.* not installed.*READIE_NETWORK=none"):
        await open_gvisor(network="sandbox", runsc=runsc)


async def test_two_workers_have_networks_apart(outside: OutsideHost, short_path: Path) -> None:
    kits = [GVisorKit(short_path / name, {}, network="sandbox") for name in ("a", "b")]
    for kit in kits:
        await kit.runtime.open()
    try:
        benches = [Bench(kit, None) for kit in kits]  # type: ignore[arg-type]
        found = await asyncio.gather(
            *(ask(bench, reach, outside.address, outside.port) for bench in benches)
        )
        assert found == [outside.near] * 2
    finally:
        for kit in kits:
            await kit.runtime.close()


async def test_two_workers_that_choose_at_the_same_moment_have_networks_apart(
    outside: OutsideHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, chosen = networks._free_slice, list[tuple[int, IPv4Network]]()

    async def the_same_at_first(routed: Sequence[IPv4Network]) -> tuple[int, IPv4Network]:
        chosen.append(await choose(routed))
        return chosen[0] if len(chosen) <= 2 else chosen[-1]

    monkeypatch.setattr(networks, "_free_slice", the_same_at_first)
    both = [networks.SandboxNetwork(f"t{secrets.token_hex(2)}") for _ in range(2)]
    try:
        await asyncio.gather(*(one.open() for one in both))
        assert both[0]._slice != both[1]._slice
    finally:
        for one in both:
            await one.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nameserver 192.0.2.53\nsearch x\n", ["192.0.2.53"]),
        ("nameserver 127.0.0.53\n", []),
        ("nameserver fe80::1\nnameserver 192.0.2.1\n", ["192.0.2.1"]),
        ("# nothing\nnameserver\n", []),
    ],
)
def test_name_servers_that_a_sandbox_cannot_reach_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: list[str]
) -> None:
    (tmp_path / "resolv.conf").write_text(text)
    monkeypatch.setattr(networks, "_RESOLVERS", (tmp_path / "resolv.conf",))

    assert networks.name_servers() == expected
