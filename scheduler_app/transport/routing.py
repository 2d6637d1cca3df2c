"""Names on the wire: topic patterns, notification channels, broker addresses without their password. Pure."""

from __future__ import annotations

import re
from hashlib import blake2b

_USER_PASSWORD = re.compile(r"(//[^/?#@:]*):[^/?#]*@")
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl)?password=)[^&#]*")


def topic_pattern(binding_key: str) -> str:
    """The regular expression that PostgreSQL matches against `routing_key || '.'`.

    AMQP 0-9-1, "topic exchange": words between dots, `*` is one word, `#` is any number of words, none included.
    """
    words = {"*": r"[^.]*\.", "#": r"([^.]*\.)*"}
    return "^" + "".join(words.get(word, re.escape(word) + r"\.") for word in binding_key.split(".")) + "$"


def notice_channel(queue: str) -> str:
    """The LISTEN/NOTIFY channel of a queue: at most 63 bytes whatever the queue is called."""
    return "everyslot_" + blake2b(queue.encode(), digest_size=12).hexdigest()


def masked(uri: str, mask: str = "**") -> str:
    """The address without passwords, neither before the host nor among the parameters."""
    return _QUERY_PASSWORD.sub(rf"\1{mask}", _USER_PASSWORD.sub(rf"\1:{mask}@", uri))
