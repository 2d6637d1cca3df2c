"""Ports for private services are free, distinct, and away from everyone else's."""

import socket

import pytest

from scheduler_app.local import ports


def test_free_ports_are_distinct_and_can_be_listened_on():
    found = ports.free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        with socket.socket() as server:
            server.bind((ports.LOOPBACK, port))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_on_which_someone_listens_is_not_free(address: str):
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])


def test_free_ports_pass_over_taken_ones(monkeypatch: pytest.MonkeyPatch):
    first, second = ports.free_ports(2)
    monkeypatch.setattr(ports.random, "sample", lambda *_: [first, second])
    with socket.socket() as server:
        server.bind((ports.LOOPBACK, first))
        server.listen()
        assert ports.free_ports(1) == [second]


def test_no_free_port_is_an_error_and_not_a_taken_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ports, "is_free", lambda _: False)
    with pytest.raises(ports.NoFreePort):
        ports.free_ports(1)


def test_ports_lie_below_those_that_the_kernel_gives_to_clients():
    assert max(ports.RANGE) < 32_768


def test_the_port_of_a_server_that_has_just_stopped_is_free() -> None:
    """Its side of a connection stays in TIME_WAIT for a minute, which keeps no server from listening again."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as every server that we start
        server.bind((ports.LOOPBACK, ports.free_ports(1)[0]))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection((ports.LOOPBACK, port)) as client:
            accepted, _ = server.accept()
            accepted.close()
            client.recv(1)
        assert not ports.is_free(port), "it listens"
    assert ports.is_free(port)
