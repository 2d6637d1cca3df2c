"""Hypothesis strategies for cron expressions whose meaning is known without parsing them."""

from hypothesis import strategies as st

from tests.core.schedule.oracle import Expression, Item

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]

ZONES = (
    "Europe/Berlin", "America/New_York", "Europe/London", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia",
    "Antarctica/Troll", "Antarctica/Casey", "Africa/Casablanca", "Africa/Cairo", "Asia/Gaza", "Asia/Amman",
    "America/St_Johns", "America/Sao_Paulo", "America/Santiago", "America/Havana", "America/Caracas",
    "Asia/Pyongyang", "Asia/Kathmandu", "Asia/Tehran", "Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Norfolk",
    "Pacific/Kwajalein", "Europe/Moscow", "America/Scoresbysund", "America/Godthab", "Asia/Ust-Nera",
    "America/Asuncion", "Africa/Juba", "Africa/El_Aaiun", "America/Toronto", "Asia/Kolkata", "UTC",
)  # fmt: skip


@st.composite
def items(draw: st.DrawFn, low: int, high: int, star_high: int, names: list[str] | None = None) -> Item:
    """One plain item of a field; values above `star_high` fold to 0 (7 is Sunday)."""
    kind = draw(st.sampled_from(("number", "range", "step", "from", "star-step", "name")))
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    step = draw(st.integers(1, 40))
    if kind == "range":
        text, values = f"{first}-{last}", range(first, last + 1)
    elif kind == "step":
        text, values = f"{first}-{last}/{step}", range(first, last + 1, step)
    elif kind == "from":
        text, values = f"{first}/{step}", range(first, high + 1, step)
    elif kind == "star-step":
        text, values = f"*/{step}", range(low, star_high + 1, step)
    elif kind == "name" and names is not None and first <= star_high:
        text, values = (
            draw(st.sampled_from((str.lower, str.upper, str.title)))(names[first - low]),
            range(first, first + 1),
        )
    else:
        text, values = draw(st.sampled_from((f"{first}", f"{first:02}"))), range(first, first + 1)
    return Item(text, frozenset(0 if value > star_high else value for value in values))


def field(low: int, high: int, star_high: int | None = None, names: list[str] | None = None) -> st.SearchStrategy:
    """A field: `*`, or a list of up to three items."""
    top = high if star_high is None else star_high
    star = st.just((Item("*", frozenset(range(low, top + 1))),))
    return star | st.lists(items(low, high, top, names), min_size=1, max_size=3).map(tuple)


SPECIAL_DAYS = st.sampled_from(("L", "LW")).map(lambda text: Item(text, special=(text,)))
SPECIAL_WEEKDAYS = st.builds(
    lambda weekday, nth: Item(f"{weekday}{nth}", special=(f"{weekday}{nth}",)),
    st.integers(0, 7),
    st.sampled_from(("L", "#1", "#2", "#3", "#4", "#5")),
)
DAYS_OF_MONTH = field(1, 31) | st.lists(SPECIAL_DAYS | items(1, 31, 31), min_size=1, max_size=3).map(tuple)
DAYS_OF_WEEK = field(0, 7, 6, WEEKDAYS) | st.lists(
    SPECIAL_WEEKDAYS | items(0, 7, 6, WEEKDAYS), min_size=1, max_size=3
).map(tuple)

EVERY_DAY = st.just((Item("*", frozenset(range(1, 32))),))
EVERY_MONTH = st.just((Item("*", frozenset(range(1, 13))),))
EVERY_WEEKDAY = st.just((Item("*", frozenset(range(7))),))

EXPRESSIONS = st.builds(Expression, field(0, 59), field(0, 23), DAYS_OF_MONTH, field(1, 12, names=MONTHS), DAYS_OF_WEEK)
"""Any expression, also ones that never fire."""

FREQUENT = st.builds(
    Expression, field(0, 59), field(0, 23), EVERY_DAY | DAYS_OF_MONTH, EVERY_MONTH, EVERY_WEEKDAY | DAYS_OF_WEEK
)
"""Expressions that fire often enough to meet a change of the clocks."""
