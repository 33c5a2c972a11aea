import django.core.validators
from django.db import migrations, models

import controlplane.models.api_key


def keep_the_first_tenant_unsalted(apps, _editor):
    """The tenant that was there first has used the engines' caches without a salt, so they stay warm for it."""
    tenants = apps.get_model('controlplane', 'Tenant')
    first = tenants.objects.order_by('pk').first()
    if first is not None:
        tenants.objects.filter(pk=first.pk).update(unsalted=True)


class Migration(migrations.Migration):

    dependencies = [
        ('controlplane', '0016_key_pools'),
    ]

    operations = [
        migrations.AddField(
            model_name='tenant',
            name='unsalted',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='tenant',
            name='served_models',
            field=models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddField(
            model_name='apikey',
            name='priority_ceiling',
            field=models.IntegerField(
                blank=True,
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(-2147483648),
                    django.core.validators.MaxValueValidator(2147483647),
                ],
            ),
        ),
        migrations.AlterField(
            model_name='apikey',
            name='scopes',
            field=models.JSONField(default=controlplane.models.api_key.usual_scopes),
        ),
        migrations.RunPython(keep_the_first_tenant_unsalted, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name='tenant',
            constraint=models.UniqueConstraint(
                condition=models.Q(('unsalted', True)), fields=('unsalted',), name='one_tenant_unsalted'
            ),
        ),
    ]
