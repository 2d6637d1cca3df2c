"""Dead-lettering: by refusal, by delivery limit, by expiry; never dropped where an exchange is named for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from kombu import Connection, Exchange, Queue

from tests.transport.messages import consuming, declare, drain, message, publish

Database = psycopg.Connection[Any]
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


def count(database: Database) -> int:
    return database.execute("SELECT count(*) FROM everyslot_transport_message").fetchone()[0]  # type: ignore[index]


def sweep(connection: Connection) -> None:
    connection.connect()
    connection.transport.session.count("UPDATE everyslot_transport_sweep SET swept_at = '-infinity'")
    connection.transport.keeper.sweep()


def test_a_refused_message_goes_to_the_dead_letter_exchange_with_its_history(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "dead")
    Queue("work", Exchange("works"), routing_key="work", queue_arguments=DEAD)(channel).declare()
    connection.Producer().publish({"n": 1}, exchange="works", routing_key="work", priority=7, headers={"mine": 1})
    channel.basic_get("work").reject()
    assert channel.basic_get("work") is None
    found = channel.basic_get("dead")
    assert found.payload == {"n": 1}
    assert found.properties["priority"] == 7
    assert found.delivery_info == {"exchange": "", "routing_key": "dead", "redelivered": False}
    death = found.headers.pop("x-death")
    assert found.headers == {
        "mine": 1,
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "work",
        "x-first-death-exchange": "works",
        "x-delivery-count": 0,
    }
    assert [(d["queue"], d["reason"], d["count"], d["routing-keys"]) for d in death] == [
        ("work", "rejected", 1, ["work"])
    ]


def test_without_a_routing_key_the_old_one_is_kept(connection: Connection) -> None:
    channel = connection.channel()
    Queue("graves", Exchange("graveyard", type="topic"), routing_key="wo.#")(channel).declare()
    declare(channel, "wo.rk", **{"x-dead-letter-exchange": "graveyard"})
    publish(channel, "wo.rk", "a")
    channel.basic_get("wo.rk").reject()
    assert channel.basic_get("graves").delivery_info["routing_key"] == "wo.rk"


def test_a_delivery_limit_of_two_delivers_three_times(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "dead")
    declare(channel, "work", **DEAD, **{"x-delivery-limit": 2})
    publish(channel, "work", "a")
    counts = []
    while found := channel.basic_get("work"):
        counts.append(found.headers.get("x-delivery-count", 0))
        found.requeue()
    assert counts == [0, 1, 2]
    dead = channel.basic_get("dead")
    assert dead.headers["x-first-death-reason"] == "delivery_limit"
    assert dead.headers["x-delivery-count"] == 2


def test_the_option_limits_queues_that_name_no_limit_and_minus_one_is_none(
    connect: Callable[..., Connection],
) -> None:
    channel = connect(delivery_limit=0).channel()
    declare(channel, "dead")
    declare(channel, "plain", **DEAD)
    declare(channel, "endless", **DEAD, **{"x-delivery-limit": -1})
    publish(channel, "plain", "a")
    publish(channel, "endless", "b")
    channel.basic_get("plain").requeue()
    channel.basic_get("endless").requeue()
    assert channel.basic_get("dead").body == b"a"
    assert channel.basic_get("endless").body == b"b"


def test_dying_twice_in_one_place_is_counted_and_the_first_death_stays(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "work", **DEAD)
    declare(channel, "dead", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
    publish(channel, "work", "a")
    for queue in ("work", "dead", "work"):
        channel.basic_get(queue).reject()
    headers = channel.basic_get("dead").headers
    assert [(death["queue"], death["count"]) for death in headers["x-death"]] == [("work", 2), ("dead", 1)]
    assert headers["x-first-death-queue"] == "work"


def test_an_expired_message_dies_with_the_next_sweep(connection: Connection) -> None:
    channel = connection.channel()
    declare(channel, "dead")
    declare(channel, "work", **DEAD, **{"x-message-ttl": 0})
    channel.publish_many([("", "work", message(channel, "a", expiration="60000"))])
    sweep(connection)
    assert channel.basic_get("dead").headers["x-first-death-reason"] == "expired"


def test_a_message_waits_while_its_dead_letter_exchange_reaches_no_queue(
    connection: Connection, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    channel = connection.channel()
    declare(channel, "work", **DEAD)
    publish(channel, "work", "a")
    channel.basic_get("work").reject()
    assert "reaches no queue" in caplog.text
    assert channel.basic_get("work") is None
    sweep(connection)
    assert count(database) == 1
    declare(channel, "dead")
    sweep(connection)
    assert channel.basic_get("dead").body == b"a"


def test_waiting_messages_do_not_block_later_ones(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler_app.transport.keeper.PAGE", 2)
    channel = connection.channel()
    declare(channel, "bad", **{"x-dead-letter-exchange": "nowhere"}, **{"x-message-ttl": 0})
    declare(channel, "good", **DEAD, **{"x-message-ttl": 0})
    declare(channel, "dead")
    publish(channel, "bad", *"abcd")
    publish(channel, "good", "e")
    for _ in range(4):
        sweep(connection)
    assert channel.basic_get("dead").body == b"e"


def test_without_a_dead_letter_exchange_a_refused_message_is_dropped_with_a_warning(
    connection: Connection, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    channel = connection.channel()
    declare(channel, "work")
    publish(channel, "work", "a")
    channel.basic_get("work").reject()
    assert count(database) == 0
    assert "dropped" in caplog.text


def test_a_consumer_of_dead_letters_is_woken(connect: Callable[..., Connection]) -> None:
    channel, waiting = connect().channel(), connect(polling_interval=60)
    declare(channel, "dead")
    declare(channel, "work", **DEAD)
    with consuming(waiting.channel(), "dead") as received:
        drain(waiting)
        publish(channel, "work", "a")
        channel.basic_get("work").reject()
        drain(waiting, 1, seconds=10)
    assert received[0].body == b"a"
