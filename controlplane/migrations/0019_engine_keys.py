import ipaddress
from urllib.parse import urlsplit

import django.core.validators
from django.conf import settings
from django.db import migrations, models

import controlplane.models.pool

ALLOWED_BEFORE = ('10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7')


def allow_what_is_registered(apps, schema_editor):
    """Let pools keep the networks that their engines are in: without SWITCHYARD_ENGINE_NETWORKS these were allowed."""
    if settings.ENGINE_NETWORKS:
        return
    for pool in apps.get_model('controlplane', 'Pool').objects.filter(engine_networks=''):
        found = set()
        for url in pool.engines.values_list('connect_url', flat=True):
            try:
                address = ipaddress.ip_address(urlsplit(url).hostname or '')
            except ValueError:
                # An https engine is known by its name; it was in one of them.
                found.update(ALLOWED_BEFORE)
            else:
                found.update(each for each in ALLOWED_BEFORE if address in ipaddress.ip_network(each))
        if found:
            pool.engine_networks = ', '.join(each for each in ALLOWED_BEFORE if each in found)
            pool.save(update_fields=['engine_networks'])


class Migration(migrations.Migration):

    dependencies = [
        ('controlplane', '0018_login_allowance'),
    ]

    operations = [
        migrations.AddField(
            model_name='pool',
            name='engine_networks',
            field=models.CharField(blank=True, db_default='', default='', max_length=500, validators=[controlplane.models.pool.check_networks]),
        ),
        migrations.AddField(
            model_name='pool',
            name='engine_api_key_env',
            field=models.CharField(blank=True, db_default='', default='', max_length=64, validators=[django.core.validators.RegexValidator('^SWITCHYARD_ENGINE_KEY_[A-Z0-9_]{1,40}$', 'Use SWITCHYARD_ENGINE_KEY_ and A-Z, 0-9, _.')]),
        ),
        migrations.RunPython(allow_what_is_registered, migrations.RunPython.noop),
    ]
