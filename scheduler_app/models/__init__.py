"""Tables: columns, constraints and reading querysets. Everything that writes a run lives in `lifecycle`."""

from scheduler_app.models.dead_letter import DeadLetter
from scheduler_app.models.job import Job
from scheduler_app.models.run import Attempt, JobRun, SkippedRange
from scheduler_app.models.step import ProcessedStep
from scheduler_app.models.term import Term
from scheduler_app.models.worker import Worker

__all__ = ["Attempt", "DeadLetter", "Job", "JobRun", "ProcessedStep", "SkippedRange", "Term", "Worker"]
