"""Pages that only show rows, also of tables with millions: nothing is counted, nothing is sorted without an index."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator

DEEPEST_PAGE = 500


class UncountedPaginator(InfinitePaginator):
    """Pages that are not counted, down to a depth that an offset still reaches at once; filters reach the rest."""

    @cached_property
    def count(self) -> int:
        return int(self.per_page) * DEEPEST_PAGE


class ReadOnlyAdmin(ModelAdmin):
    """Nobody adds, changes or deletes these rows by hand."""

    paginator = UncountedPaginator
    show_full_result_count = False
    list_per_page = 50
    sortable_by: tuple[str, ...] = ()
    list_disable_select_all = True

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
