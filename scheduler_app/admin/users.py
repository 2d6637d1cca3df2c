"""Users and groups in the dress of the other pages."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as PlainGroupAdmin
from django.contrib.auth.admin import UserAdmin as PlainUserAdmin
from django.contrib.auth.models import Group, User
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from scheduler_app.admin.base import ModelAdmin

admin.site.unregister([User, Group])


@admin.register(User)
class UserAdmin(PlainUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(PlainGroupAdmin, ModelAdmin):
    pass
