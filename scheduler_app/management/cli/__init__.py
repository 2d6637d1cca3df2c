"""The verbs of `manage.py jobs`, one module each."""

from scheduler_app.management.cli import (
    add,
    coming,
    dead,
    deciding,
    letters,
    listing,
    pausing,
    remove,
    runs,
    show,
    start,
    synchronise,
)

VERBS = (
    listing.VERB,
    show.VERB,
    coming.VERB,
    runs.VERB,
    dead.VERB,
    add.VERB,
    remove.VERB,
    synchronise.VERB,
    start.VERB,
    pausing.PAUSE,
    pausing.RESUME,
    deciding.CANCEL,
    deciding.REDRIVE,
    letters.LETTERS,
    letters.DISCARD,
)
