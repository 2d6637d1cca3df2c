"""Pages that only show rows, also of tables with millions: nothing is counted, nothing is sorted without an index."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.contrib.admin import ShowFacets
from django.http import HttpRequest
from unfold.paginator import InfinitePaginator as EndlessPaginator

from scheduler_app.admin.base import ModelAdmin

DEEPEST_PAGE = 500


class InfinitePaginator(EndlessPaginator):
    """Pages that are not counted, down to a depth that an offset still reaches at once; filters reach the rest.

    The templates know an uncounted list by the name of this class.
    """

    @cached_property
    def count(self) -> int:
        return int(self.per_page) * DEEPEST_PAGE


class ReadOnlyAdmin(ModelAdmin):
    """Nobody adds, changes or deletes these rows by hand."""

    paginator = InfinitePaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_per_page = 50
    sortable_by: tuple[str, ...] = ()
    list_disable_select_all = True
    actions_detail_hide_default = True

    class Media:
        css = {"all": ("scheduler_app/admin.css",)}

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
