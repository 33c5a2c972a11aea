"""Django settings, read only from the environment. `.env.example` lists every variable.

The defaults work on one machine without other services: SQLite, and a server of our own for bus and jobs. For several
machines, set
DATABASE_URL and REDIS_URL. controlplane.project.checks rejects unsafe combinations.
"""

from __future__ import annotations

import ipaddress
import logging.config
import os
from typing import Any
from urllib.parse import urlsplit

from csp.constants import NONCE
from django.core.exceptions import ImproperlyConfigured

from controlplane.fleet.discovery.setting import parse_discovery
from controlplane.platform.environment import BASE_DIR, env, state_directory
from controlplane.project.first_run.secrets import UnsafeSecretsError, secrets_of
from controlplane.project.json_log import logging_settings
from gateway.base import settings as gateway_settings
from gateway.pools.engines.engine_tls import EngineTls, EngineTlsError
from gateway.server.http.cors import read_origins
from gateway.server.process.shutdown import DRAIN_S as DEFAULT_DRAIN_S
from kvstore.transfer.tls import is_loopback

STATE_DIR = state_directory()
STATE_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)

# Who may reach us -------------------------------------------------------------------------------
DEBUG = env.flag("HEADWAY_DEBUG", default=False)
ALLOWED_HOSTS = env.words("HEADWAY_ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]"])
LOOPBACK_ONLY = set(ALLOWED_HOSTS) <= {"127.0.0.1", "localhost", "[::1]"}
CSRF_TRUSTED_ORIGINS = env.words("HEADWAY_TRUSTED_ORIGINS")
try:
    CORS_ORIGINS = read_origins(env.words("HEADWAY_CORS_ORIGINS"), "HEADWAY_CORS_ORIGINS")
except ValueError as error:
    raise ImproperlyConfigured(str(error)) from error
MAX_BODY_BYTES = env.whole_number("HEADWAY_MAX_BODY_BYTES", default=1 << 20, at_least=1 << 10, at_most=1 << 26)
_LEAST_BYTES, _MOST_BYTES = gateway_settings.PROXY_BODY_RANGE
PROXY_BODY_BYTES = env.whole_number(
    "HEADWAY_PROXY_BODY_BYTES", default=gateway_settings.PROXY_BODY_LIMIT, at_least=_LEAST_BYTES, at_most=_MOST_BYTES
)
# At the addresses where whole traces are uploaded, bodies may be as long as the proxy's.
LONG_BODIES = ("/api/v1/recordings/upload", "/trials/recordings")
SCRAPE_TOKEN = env.text("HEADWAY_SCRAPE_TOKEN")
PROCESSES = env.whole_number(
    "HEADWAY_PROCESSES",
    default=env.whole_number("WEB_CONCURRENCY", default=1, at_least=1, at_most=1024),
    at_least=1,
    at_most=1024,
)
_LIMIT_S = {"at_least": 1, "at_most": 999_999}
PROBE_TIMEOUT_S = env.whole_number("HEADWAY_PROBE_TIMEOUT_S", default=gateway_settings.PROBE_TIMEOUT_S, **_LIMIT_S)
HANG_LIMIT_S = env.whole_number("HEADWAY_HANG_LIMIT_S", default=gateway_settings.HANG_LIMIT_S, **_LIMIT_S)
ANSWER_LIMIT_S = env.whole_number("HEADWAY_ANSWER_LIMIT_S", default=gateway_settings.ANSWER_LIMIT_S, **_LIMIT_S)
STREAM_COMMENT_S = env.whole_number("HEADWAY_STREAM_COMMENT_S", default=0, at_least=0, at_most=999_999)
CLIENT_IDLE_S = env.whole_number("HEADWAY_CLIENT_IDLE_S", default=gateway_settings.CLIENT_IDLE_S, **_LIMIT_S)
DRAIN_S = env.whole_number("HEADWAY_DRAIN_S", default=DEFAULT_DRAIN_S, at_least=0, at_most=999_999)

# Secrets ----------------------------------------------------------------------------------------
# Each with the one that is also accepted while it is rotated.
SECRET_KEY, _secret_key_also = env.text("SECRET_KEY"), env.text("SECRET_KEY_ALSO")
_fleet_secret, _fleet_secret_also = env.text("HEADWAY_FLEET_SECRET"), env.text("HEADWAY_FLEET_SECRET_ALSO")
SECRETS_GIVEN = bool(SECRET_KEY and _fleet_secret)
if not SECRETS_GIVEN:
    try:
        _first_run = secrets_of(STATE_DIR)
    except UnsafeSecretsError as error:
        raise ImproperlyConfigured(str(error)) from error
    if not SECRET_KEY:
        SECRET_KEY, _secret_key_also = _first_run.secret_key, _first_run.secret_key_also
    if not _fleet_secret:
        _fleet_secret, _fleet_secret_also = _first_run.fleet_secret, _first_run.fleet_secret_also
SECRET_KEY_FALLBACKS = [_secret_key_also] if _secret_key_also else []
FLEET_SECRET, FLEET_SECRET_ALSO = _fleet_secret.encode(), _fleet_secret_also.encode()

# What runs --------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "controlplane",
    "web",
    "rest_framework",
    "channels",
    "csp",
    # Only models and the parts named in web/access: pages, texts, and rules of sign-in are our own.
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "csp.middleware.CSPMiddleware",
    "web.shell.static_files.WholeFileMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "web.access.preferences.show_own_times",
    "web.access.sign_in_steps.enroll_first",
    "web.access.session_record.note_sessions",
    "web.shell.no_role.NoRoleMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "web.shell.error_pages.show_wrong_methods",
]
CSRF_FAILURE_VIEW = "web.shell.error_pages.csrf_failure"
ROOT_URLCONF = "controlplane.project.urls"
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "web.access.preferences.times",
            ]
        },
    }
]

# Database ---------------------------------------------------------------------------------------
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES: dict[str, dict[str, Any]] = {
    "default": env.database("DATABASE_URL", default=f"sqlite:///{STATE_DIR / 'headway.sqlite3'}")
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        # Deferred transactions that read first and write later fail under WAL as soon as a second
        # writer exists; taking the write lock at the start makes them wait instead.
        "transaction_mode": "IMMEDIATE",
        # Seconds that a writer waits for another: on a machine short of CPU time the jobs, which have the lowest
        # priority, hold the lock for long, and a click must not be lost by that.
        "timeout": 20,
        # WAL lets pages read while a job writes.
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=67108864;",
    }

else:
    # A server that vanishes silently must not hold the threads of pages and jobs; the URL's options take precedence.
    DATABASES["default"]["OPTIONS"] = {
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        "options": "-c statement_timeout=30s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s",
        **DATABASES["default"].get("OPTIONS", {}),
    }

# Bus, jobs --------------------------------------------------------------------------------------
REDIS_URL = env.text("REDIS_URL")
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
    # Lowered so that the work of a killed worker does not wait for 100 s.
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "global_keyprefix": "headway:jobs:",
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Celery's default gives up after three quarters of an hour without Redis, and jobs would never resume.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_ALWAYS_EAGER = False
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# Remote control would reach all workers on the server, those of other installations included.
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_TIMEZONE = "UTC"

# Engines ----------------------------------------------------------------------------------------
ALLOW_LOOPBACK_ENGINES = env.flag("HEADWAY_ALLOW_LOOPBACK_ENGINES", default=LOOPBACK_ONLY)
try:
    # None by default: an address is sent tenants' prompts and the engines' key, so an admin has to allow its network.
    ENGINE_NETWORKS = tuple(ipaddress.ip_network(network) for network in env.words("HEADWAY_ENGINE_NETWORKS"))
except ValueError as error:
    raise ImproperlyConfigured(f"HEADWAY_ENGINE_NETWORKS: {error}") from error

try:
    DISCOVERY = parse_discovery(env.text("HEADWAY_DISCOVERY"))
except ValueError as error:
    raise ImproperlyConfigured(f"HEADWAY_DISCOVERY: {error}") from error
try:
    # Read where engines are called; unusable files are reported here, before anything starts.
    EngineTls.of(os.environ)
except EngineTlsError as error:
    raise ImproperlyConfigured(str(error)) from error
ENGINE_API_KEY = env.text("HEADWAY_ENGINE_API_KEY")
DEMO_PORTS_FROM = env.whole_number("HEADWAY_DEMO_PORTS_FROM", default=21_000, at_least=1024, at_most=31_900)

# Decision records -------------------------------------------------------------------------------
DECISION_BYTES = env.whole_number("HEADWAY_DECISION_BYTES", default=1 << 30, at_least=8 << 20, at_most=1 << 44)
DECISIONS_PER_S = env.whole_number("HEADWAY_DECISIONS_PER_S", default=50, at_least=0, at_most=100_000)

# Recordings of traffic ---------------------------------------------------------------------------
RECORDING_BYTES = env.whole_number("HEADWAY_RECORDING_BYTES", default=256 << 20, at_least=0, at_most=1 << 44)
RECORDING_HOURS = env.whole_number("HEADWAY_RECORDING_HOURS", default=168, at_least=1, at_most=87_600)
KEPT_RECORDING_BYTES = env.whole_number(
    "HEADWAY_KEPT_RECORDING_BYTES", default=512 << 20, at_least=1 << 20, at_most=1 << 44
)

# Replays of each day's traffic for the ledger of savings ----------------------------------------
SAVINGS_CPU_S = env.whole_number("HEADWAY_SAVINGS_CPU_S", default=300, at_least=0, at_most=86_400)

# Policies ---------------------------------------------------------------------------------------
# Links in notifications; a request's own host is no source, because no request is there when an incident opens.
CONSOLE_URL = env.text("HEADWAY_CONSOLE_URL").rstrip("/")
if CONSOLE_URL and urlsplit(CONSOLE_URL).scheme not in ("http", "https"):
    raise ImproperlyConfigured("HEADWAY_CONSOLE_URL is not an address such as https://headway.example.com")
PUBLISH_GRACE_MIN = env.whole_number("HEADWAY_PUBLISH_GRACE_MIN", default=10, at_least=1, at_most=1440)

# Audit ------------------------------------------------------------------------------------------
AUDIT_RETENTION_DAYS = env.whole_number("HEADWAY_AUDIT_RETENTION_DAYS", default=730, at_least=0, at_most=36_500)

# Browser security -------------------------------------------------------------------------------
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        # No inline script or style: text that slips into a page as markup runs nothing.
        "script-src": ["'self'"],
        # The nonce enters the header only of the policy editor, whose template uses it: CodeMirror adds style elements.
        "style-src": ["'self'", NONCE],
        "connect-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
    }
}
# On this machine alone, the console is used without TLS.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not LOOPBACK_ONLY
SESSION_ENGINE = "web.shell.session_store"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_HSTS_SECONDS = 0 if LOOPBACK_ONLY else 31_536_000
SECURE_REFERRER_POLICY = "same-origin"
# Only on request: without a proxy that sets the header, every client could claim TLS.
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("HEADWAY_BEHIND_TLS_PROXY", default=False) else None
)
X_FRAME_OPTIONS = "DENY"
LOGIN_URL = "/login"
OIDC_ISSUER = env.text("HEADWAY_OIDC_ISSUER").rstrip("/")
OIDC_CLIENT_ID, OIDC_CLIENT_SECRET = env.text("HEADWAY_OIDC_CLIENT_ID"), env.text("HEADWAY_OIDC_CLIENT_SECRET")
OIDC_GROUPS_CLAIM = env.text("HEADWAY_OIDC_GROUPS_CLAIM") or "groups"
if OIDC_ISSUER and not (OIDC_ISSUER.startswith("https://") or is_loopback(urlsplit(OIDC_ISSUER).hostname or "")):
    raise ImproperlyConfigured("HEADWAY_OIDC_ISSUER must begin with https://; http is allowed only for this machine.")
if len({bool(value) for value in (OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET)}) > 1:
    raise ImproperlyConfigured("Set all of HEADWAY_OIDC_ISSUER, HEADWAY_OIDC_CLIENT_ID, HEADWAY_OIDC_CLIENT_SECRET.")
SOCIALACCOUNT_ADAPTER = "web.access.provider.ProviderApps"
MFA_ADAPTER, MFA_TOTP_ISSUER = "controlplane.access.second_factors.FactorAdapter", "Headway"
# A code of the previous or next half minute is accepted, for clocks that differ a little.
MFA_TOTP_TOLERANCE = 1
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login"
AUTHENTICATION_BACKENDS = ["controlplane.access.person_backend.PersonBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

# Static files: straight from the apps, or hashed and compressed from where collectstatic put them --
STATIC_URL = "/static/"
STATIC_ROOT = env.text("HEADWAY_STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_MAX_AGE = 0 if STATIC_ROOT is None else 60
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "web.shell.static_files.VersionedStorage"
    },
}

REST_FRAMEWORK: dict[str, Any] = {
    # Every view of the management API declares the rest; one that does not is closed.
    "DEFAULT_RENDERER_CLASSES": ["controlplane.platform.api.problem.ApiRenderer"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.platform.api.strict_json.StrictJsonParser"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"],
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Headway",
    "DESCRIPTION": "Control plane for fleets of LLM inference engines: management API, decision API, proxy.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "DesiredState": "controlplane.fleet.models.engine.DesiredState.choices",
        "DesiredStateByHand": "controlplane.fleet.api.engines.CHOICES_BY_HAND",
        "NotifiedEvent": "controlplane.notifications.models.notification.NotifiedEvent.choices",
        "Severity": "controlplane.notifications.models.notification.Severity.choices",
        "SendState": "controlplane.notifications.models.notification.SendState.choices",
        "ProposalState": "controlplane.advice.models.advice_proposal.ProposalState.choices",
        "SavingsState": "controlplane.savings.models.savings_rows.SavingsState.choices",
        "IncidentState": "controlplane.incidents.models.incident.IncidentState.choices",
        "JobState": "controlplane.platform.models.job_run.JobState.choices",
        "KeySource": "controlplane.fleet.models.pool.KeySource.choices",
        "EngineRole": "controlplane.fleet.models.engine.EngineRole.choices",
        "ActuatorKind": "controlplane.fleet.models.pool.ActuatorKind.choices",
        "HealthState": "controlplane.automation.models.engine_health.HealthState.choices",
        "ActionKind": "controlplane.automation.models.engine_action.ActionKind.choices",
        "ActionState": "controlplane.automation.models.engine_action.ActionState.choices",
        "BudgetUnit": "controlplane.usage.models.budget.BudgetUnit.choices",
        "BudgetWindow": "controlplane.usage.models.budget.BudgetWindow.choices",
        "PoolMode": "controlplane.fleet.models.pool.PoolMode.choices",
        "BudgetMode": "controlplane.usage.models.budget.BudgetMode.choices",
        "Role": "controlplane.access.models.role_grant.Role.choices",
    },
}

USE_TZ = True
# Two operators in different zones then mean the same time (decision 16).
TIME_ZONE = "UTC"
USE_I18N = False
LOG_LEVEL = env.choice("HEADWAY_LOG_LEVEL", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
# Django would configure logging at each django.setup(), and Celery calls that a second time in the running
# program, which would take its log file away; so it happens here, once.
LOGGING_CONFIG = None
logging.config.dictConfig(logging_settings(LOG_LEVEL))
