"""The transport's tables, exactly as `schema.py` states them."""

from django.db import migrations

from scheduler_app.transport import schema


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [migrations.RunSQL(sql=list(schema.CREATE), reverse_sql=list(schema.DROP))]
