"""The admin: define schedules with a preview, start and pause jobs, see runs and their errors, redrive dead ones."""

from scheduler_app.admin import dead_letters, jobs, runs, terms, users, workers

__all__ = ["dead_letters", "jobs", "runs", "terms", "users", "workers"]
