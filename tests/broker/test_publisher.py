"""Publishing hints: what counts as confirmed, what a missing broker does, and how many a window carries."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from amqp.exceptions import PreconditionFailed
from kombu import Connection

from scheduler_app.broker import publisher as publisher_module
from scheduler_app.broker.capabilities import BulkLink, SingleLink, link_for
from scheduler_app.broker.publisher import Publisher, publisher
from scheduler_app.broker.topology import dead_exchange, dead_queue, work_queue
from scheduler_app.broker.windowed import CHUNK, WINDOW, WindowedLink
from scheduler_app.core.message import ATTEMPT_HEADER, Hint
from scheduler_app.models.ids import new_id
from tests.support.brokers import a_publisher, announced

pytestmark = pytest.mark.django_db(transaction=True)

Pair = tuple[Publisher, Connection]


@pytest.fixture(params=["postgres", "rabbitmq"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with a_publisher(request.param) as found:
        yield found


@pytest.fixture
def rabbitmq() -> Iterator[Pair]:
    with a_publisher("rabbitmq") as found:
        yield found


def hint(queue: str = "default", attempt: int = 0, priority: int = 4) -> Hint:
    return Hint(new_id(), "tests.report", attempt, queue, priority)


def test_a_confirmed_hint_is_in_the_queue_as_a_celery_message(pair: Pair) -> None:
    publish, beside = pair
    sent = hint(attempt=2)
    assert publish.publish([sent]) == {sent.run_id}
    message = beside.channel().basic_get("default", no_ack=True)
    assert json.loads(message.body) == [[], {}, {}]
    headers = message.headers
    assert (headers["id"], headers["task"], headers[ATTEMPT_HEADER]) == (str(sent.run_id), "tests.report", 2)
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")


def test_more_hints_than_a_window_are_all_confirmed(pair: Pair) -> None:
    publish, _ = pair
    hints = [hint() for _ in range(WINDOW + 500)]
    assert publish.publish(hints, timeout=60) == {each.run_id for each in hints}
    assert publish.depth("default") == len(hints)


def test_no_more_than_a_window_is_on_its_way(rabbitmq: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, _ = rabbitmq
    on_their_way: list[int] = []
    send = WindowedLink._send

    def counted(link: WindowedLink, hints: list[Hint]) -> None:
        send(link, hints)
        on_their_way.append(len(link._pending))

    monkeypatch.setattr(WindowedLink, "_send", counted)
    hints = [hint() for _ in range(2 * WINDOW)]
    assert len(publish.publish(hints, timeout=60)) == len(hints)
    assert CHUNK < max(on_their_way) <= WINDOW, "neither one by one nor all at once"


QUEUES = {"default": work_queue("default"), "the dead": dead_queue()}
ARGUMENTS = [(name, argument) for name, queue in QUEUES.items() for argument in queue.queue_arguments]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_the_broker_has_each_queue_as_it_is_declared(rabbitmq: Pair, name: str, argument: str) -> None:
    """RabbitMQ refuses to declare a queue again in another way: so it says how it has it."""
    queue = QUEUES[name].bind(rabbitmq[1].channel())
    queue.queue_declare()
    queue.queue_arguments = {key: value for key, value in queue.queue_arguments.items() if key != argument}
    with pytest.raises(PreconditionFailed, match=argument.removeprefix("x-queue-").removeprefix("x-")):
        queue.queue_declare()


def test_the_queues_keep_what_they_are_given() -> None:
    work, dead = (queue.queue_arguments for queue in QUEUES.values())
    assert (work["x-queue-type"], dead["x-queue-type"]) == ("quorum", "quorum")
    assert (work["x-dead-letter-strategy"], work["x-overflow"]) == ("at-least-once", "reject-publish")
    assert work["x-delivery-limit"] == 100
    assert work["x-dead-letter-exchange"] == dead_exchange.name
    assert work["x-dead-letter-routing-key"] == dead_queue().routing_key


def test_a_hint_that_no_queue_wants_is_not_confirmed_and_the_others_are(pair: Pair) -> None:
    publish, _ = pair
    lost, kept = hint("nowhere"), [hint(), hint("fast")]
    assert publish.publish([kept[0], lost, kept[1]]) == {each.run_id for each in kept}
    assert publish.answered, "the broker answered: it refused"
    assert publish.publish([lost]) == frozenset()


def test_each_broker_gets_the_way_that_its_channel_offers(pair: Pair) -> None:
    _, beside = pair
    kind = type(link_for(beside.channel()))
    assert kind is (BulkLink if beside.transport.driver_type == "postgresql" else WindowedLink)
    with Connection("memory://") as memory:
        assert type(link_for(memory.channel())) is SingleLink


def test_a_plain_kombu_transport_serves_too() -> None:
    with Connection("memory://") as memory:
        channel = memory.channel()
        work_queue("default").bind(channel).declare()
        sent = hint()
        assert link_for(channel).publish([sent], float("inf")) == ({sent.run_id}, True)
        assert channel.basic_get("default").headers["id"] == str(sent.run_id)


def test_nothing_to_publish_needs_no_broker() -> None:
    assert Publisher("amqp://nobody@127.0.0.1:1//").publish([]) == frozenset()


def test_a_broker_that_refuses_connections_raises_nothing() -> None:
    away = Publisher("amqp://nobody@127.0.0.1:1//")
    with announced() as events:
        assert away.publish([hint()]) == frozenset()
        assert away.depth("default") is None
    assert not away.answered
    assert [event for event, _ in events] == ["broker.unreachable"] * 2


def test_a_broker_that_says_nothing_costs_no_more_than_the_bounds() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        away = Publisher(f"amqp://nobody@127.0.0.1:{silent.getsockname()[1]}//")
        done: list[object] = []
        thread = threading.Thread(target=lambda: done.append(away.publish([hint()], timeout=1)), daemon=True)
        thread.start()
        thread.join(20)
    assert done == [frozenset()]


def test_a_connection_that_died_while_idle_is_opened_anew(pair: Pair) -> None:
    publish, _ = pair
    publish.publish([hint()])
    assert publish._connection is not None
    sever(publish._connection)
    sent = hint()
    with announced() as events:
        assert publish.publish([sent]) == {sent.run_id}
    assert events == []


def sever(connection: Connection) -> None:
    """Cut the connection under the client's feet."""
    link = connection.connection
    descriptor = link.session.fileno() if hasattr(link, "session") else link.transport.sock.fileno()
    with socket.socket(fileno=os.dup(descriptor)) as end:
        end.shutdown(socket.SHUT_RDWR)


def test_a_confirm_that_is_withheld_leaves_the_hint_unconfirmed(
    rabbitmq: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, _ = rabbitmq
    publish.publish([hint()])
    monkeypatch.setattr(WindowedLink, "_on_ack", lambda *_: None)
    publish.close()
    with announced() as events:
        assert publish.publish([hint()], timeout=0.3) == frozenset()
    assert not publish.answered
    assert events[0][1]["error"] == "the broker did not confirm in time"


def test_a_write_that_is_cut_off_confirms_nothing(rabbitmq: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, _ = rabbitmq
    publish.publish([hint()])

    def cut(*_: object) -> None:
        raise TimeoutError("timed out")

    link = publish._link
    assert link is not None
    monkeypatch.setattr(publish._connection.connection.transport, "write", cut)
    assert link.publish([hint() for _ in range(3)], time.monotonic() + 30) == (set(), False)


def test_a_refused_hint_is_not_confirmed(rabbitmq: Pair) -> None:
    publish, _ = rabbitmq
    publish.publish([hint()])
    link = publish._link
    assert isinstance(link, WindowedLink)
    link._pending = {5: new_id(), 6: new_id(), 7: new_id()}
    wanted = link._pending[7]
    link._on_nack(6, True)
    assert list(link._pending.values()) == [wanted]
    assert len(link._refused) == 2


def test_threads_share_one_publisher(pair: Pair) -> None:
    publish, _ = pair
    hints = [[hint() for _ in range(50)] for _ in range(4)]
    results: list[frozenset[object]] = []
    threads = [threading.Thread(target=lambda mine=mine: results.append(publish.publish(mine, 30))) for mine in hints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {each for found in results for each in found} == {each.run_id for mine in hints for each in mine}


def test_a_forked_child_gets_a_publisher_of_its_own() -> None:
    parents = publisher()
    child = os.fork()
    if child == 0:
        os._exit(0 if publisher() is not parents and publisher_module._abandoned == [parents] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert publisher() is parents
