"""URLs of the console's pages."""

from __future__ import annotations

from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.generic import RedirectView

from controlplane.access.resources import GROUP_GRANTS, KEYS, PEOPLE, TENANTS
from controlplane.fleet.resources import ENGINES, POOLS, SERVICES
from controlplane.notifications.changing import CHANNELS, ROUTES, SILENCES
from controlplane.objectives.objective import OBJECTIVES
from controlplane.usage.budgets import BUDGETS, PRICES
from web.access import factors as access_factors
from web.access import keys as access_keys
from web.access import people as access_people
from web.access import preferences, provider, saved_views
from web.access import secrets as access_secrets
from web.access import sessions as access_sessions
from web.access import tenants as access_tenants
from web.access import you as access_you
from web.access.audit import audit, audit_download
from web.access.login import invitation, passkey_options, passkey_sign_in, second_step, sign_in, sign_out
from web.access.page import admins_only
from web.advice import page as advice
from web.automation import jobs
from web.automation.changes import change_automation
from web.automation.page import automation, automation_pool, automation_timeline
from web.capacity.page import capacity
from web.fleet.engine import card, decision, set_state
from web.fleet.fleet import fleet
from web.fleet.services.page import all_pools_only, services
from web.fleet.sovereignty.page import sovereignty
from web.fleet.topology import changes as topology_changes
from web.fleet.topology import new_pool as topology_new_pool
from web.fleet.topology import pool_change as topology_pool_change
from web.fleet.topology.connect import connect as topology_connect
from web.fleet.topology.live import topology_checklist, topology_live
from web.fleet.topology.page import topology
from web.fleet.topology.paste import topology_paste
from web.history.cache_locality import cache_locality, cache_locality_pool
from web.history.fleet_past import fleet_history
from web.incidents import page as incidents
from web.incidents.overview import overview as incidents_overview
from web.kv_nodes.page import end_pin, forget_node, kv_moves, kv_store, set_prefix_copies, set_rules
from web.notifications import page as notifications
from web.objectives import page as objectives
from web.policies.check import check as policy_check
from web.policies.check import state as policy_state
from web.policies.compare import compare as policy_compare
from web.policies.editor.editing import policy
from web.policies.editor.merge import merge as policy_merge
from web.policies.lifecycle import cancel_publish, give_approval, remove_draft, set_approval_rule, take_approval_back
from web.policies.policies import policies
from web.policies.publish import go_back as policy_roll_back
from web.policies.publish import publish as policy_publish
from web.regions.page import regions
from web.request_log import recordings
from web.request_log.call_graph import agents
from web.request_log.decision import decision as decision_page
from web.request_log.decision import decision_json
from web.request_log.decisions import decisions, decisions_tap
from web.request_log.decisions import export as requests_export
from web.savings import page as savings_page
from web.shell.csv_export import csv_download
from web.shell.help import api_reference, help_page, llms_txt, tour
from web.shell.palette import palette
from web.trials.canary.pages import PAGES as CANARIES
from web.trials.shadow.pages import PAGES as SHADOWS
from web.trials.whatif.pages import PAGES as WHATIFS
from web.usage import objects as usage_objects
from web.usage import page as usage_page

urlpatterns = [
    path("", fleet, name="fleet"),
    path("fleet/history", fleet_history, name="fleet-history"),
    path("fleet/engines/<str:engine_id>", card, name="fleet-engine"),
    path("fleet/engines/<str:engine_id>/state", set_state, name="fleet-engine-state"),
    path("fleet/decisions/<str:decision_id>", decision, name="fleet-decision"),
    path("requests", decisions, name="requests"),
    path("requests.csv", requests_export, {"form": "csv"}, name="requests-csv"),
    path("requests.json", requests_export, {"form": "json"}, name="requests-json"),
    path("requests/tap", decisions_tap, name="requests-tap"),
    path("requests/<str:decision_id>.json", decision_json, name="decision-json"),
    path("requests/<str:decision_id>", decision_page, name="decision"),
    path("cache", cache_locality, name="cache"),
    path("cache/pools/<slug:slug>", cache_locality_pool, name="cache-pool"),
    path("policies", policies, name="policies"),
    path("policies/<slug:slug>", policy, name="policy"),
    path("policies/<slug:slug>/check", policy_check, name="policy-check"),
    path("policies/<slug:slug>/compare", policy_compare, name="policy-compare"),
    path("policies/<slug:slug>/merge", policy_merge, name="policy-merge"),
    path("policies/<slug:slug>/approve", give_approval, name="policy-approve"),
    path("policies/<slug:slug>/withdraw-approval", take_approval_back, name="policy-withdraw-approval"),
    path("policies/<slug:slug>/approval-rule", set_approval_rule, name="policy-approval-rule"),
    path("policies/<slug:slug>/delete-draft", remove_draft, name="policy-delete-draft"),
    path("policies/<slug:slug>/cancel-publish", cancel_publish, name="policy-cancel-publish"),
    path("policies/<slug:slug>/publish", policy_publish, name="policy-publish"),
    path("policies/<slug:slug>/roll-back", policy_roll_back, name="policy-roll-back"),
    path("policies/<slug:slug>/state", policy_state, name="policy-state"),
    path("advice", advice.advice, name="advice"),
    path("advice/record", advice.record, name="advice-record"),
    path("advice/search", advice.search, name="advice-search"),
    path("advice/stop", advice.stop, name="advice-stop"),
    path("advice/proposals/<int:number>", advice.proposal, name="advice-proposal"),
    path("advice/proposals/<int:number>/<slug:act>", advice.act, name="advice-act"),
    path("usage", usage_page.usage, name="usage"),
    path("usage.csv", usage_page.download, {"form": "csv"}, name="usage-csv"),
    path("usage.json", usage_page.download, {"form": "json"}, name="usage-json"),
    path("usage/budgets", usage_objects.budgets, name="usage-budgets"),
    path("usage/budgets.csv", all_pools_only(csv_download(BUDGETS)), name="budgets-csv"),
    path("usage/prices", usage_objects.prices, name="usage-prices"),
    path("usage/prices.csv", all_pools_only(csv_download(PRICES)), name="prices-csv"),
    path("savings", savings_page.savings, name="savings"),
    path("savings.csv", savings_page.download, name="savings-csv"),
    path("objectives", objectives.objectives, name="objectives"),
    path("objectives.csv", objectives.all_pools_only(csv_download(OBJECTIVES)), name="objectives-csv"),
    path("notifications", notifications.messages, name="notifications"),
    path("notifications/channels", notifications.channels, name="notification-channels"),
    path("notifications/routes", notifications.routes, name="notification-routes"),
    path("notifications/rules", notifications.rules, name="rules"),
    path("notifications/silences", notifications.silences, name="silences"),
    *(
        path(f"notifications/{name}.csv", notifications.all_pools_only(csv_download(resource)), name=f"{name}-csv")
        for name, resource in (("channels", CHANNELS), ("routes", ROUTES), ("silences", SILENCES))
    ),
    path("trials", WHATIFS.list_view, name="trials"),
    path("trials/whatif", WHATIFS.start_view, name="whatif-start"),
    path("trials/whatif/<int:whatif_id>", WHATIFS.page_view, name="whatif"),
    path("trials/whatif/<int:whatif_id>/cancel", WHATIFS.action_view, {"action": "cancel"}, name="whatif-cancel"),
    path("trials/whatif/<int:whatif_id>/again", WHATIFS.action_view, {"action": "again"}, name="whatif-again"),
    path("trials/shadows", SHADOWS.list_view, name="shadows"),
    path("trials/shadows/start", SHADOWS.start_view, name="shadow-start"),
    path("trials/shadows/<int:shadow_id>", SHADOWS.page_view, name="shadow"),
    path("trials/shadows/<int:shadow_id>/route", SHADOWS.action_view, {"action": "route"}, name="shadow-route"),
    path("trials/shadows/<int:shadow_id>/stop", SHADOWS.action_view, {"action": "stop"}, name="shadow-stop"),
    path("trials/canaries", CANARIES.list_view, name="canaries"),
    path("trials/canaries/start", CANARIES.start_view, name="canary-start"),
    path("trials/canaries/<slug:key>", CANARIES.page_view, name="canary"),
    path("trials/canaries/<slug:key>/<slug:action>", CANARIES.action_view, name="canary-turn"),
    path("trials/recordings", recordings.recordings, name="recordings"),
    path("trials/recordings/<int:recording_id>/delete", recordings.delete, name="recording-delete"),
    path("trials/recordings/<int:recording_id>/trace", recordings.download, name="recording-download"),
    path("engines", topology, name="engines"),
    path("engines/live", topology_live, name="engines-live"),
    path("engines/paste", topology_paste, name="engines-paste"),
    path("engines.csv", csv_download(ENGINES), name="engines-csv"),
    path("pools.csv", csv_download(POOLS), name="pools-csv"),
    path("engines/connect", topology_connect, name="engines-connect"),
    path("engines/pools", topology_new_pool.create, name="engines-new-pool"),
    path("engines/register", topology_changes.register, name="engines-register"),
    path("engines/<str:engine_id>/change", topology_changes.change, name="engines-change"),
    path("engines/<str:engine_id>/move", topology_changes.move, name="engines-move"),
    path("engines/<str:engine_id>/delete", topology_changes.delete, name="engines-delete"),
    path("engines/<str:engine_id>/check", topology_changes.check, name="engines-check"),
    path("engines/<str:engine_id>/checklist", topology_checklist, name="engines-checklist"),
    path("engines/pools/<slug:slug>/change", topology_pool_change.change_settings, name="engines-pool-change"),
    path("engines/pools/<slug:slug>/observe", topology_pool_change.observe, name="engines-pool-observe"),
    path("regions", regions, name="regions"),
    path("engines/services", services, name="services"),
    path("engines/services.csv", all_pools_only(csv_download(SERVICES)), name="services-csv"),
    path("regions/sovereignty", sovereignty, name="sovereignty"),
    path("regions/capacity", capacity, name="capacity"),
    path("cache/store", kv_store, name="cache-store"),
    path("cache/moves", kv_moves, name="cache-moves"),
    path("cache/agents", agents, name="agents"),
    path("cache/store/<str:name>/delete", forget_node, name="cache-node-delete"),
    path("cache/prefixes/<slug:slug>/copies", set_prefix_copies, name="cache-copies"),
    path("cache/store/<str:name>/rules", set_rules, name="cache-rules"),
    path("cache/store/<str:name>/unpin", end_pin, name="cache-unpin"),
    path("access", access_you.access, name="access"),
    path("access/keys", access_keys.keys, name="access-keys"),
    path("access/keys.csv", admins_only(csv_download(KEYS)), name="keys-csv"),
    path("access/keys/<slug:key_id>", access_keys.change_key, name="access-key-change"),
    path("access/keys/<slug:key_id>/revoke", access_keys.revoke_key, name="access-key-revoke"),
    path("access/keys/<slug:key_id>/rotate", access_keys.rotate_key, name="access-key-rotate"),
    path("access/keys/<slug:key_id>/end-previous", access_keys.end_previous, name="access-key-end-previous"),
    path("access/people", access_people.people, name="access-people"),
    path("access/people.csv", admins_only(csv_download(PEOPLE)), name="people-csv"),
    path("access/people/sign-in-policy", access_factors.policy, name="access-sign-in-policy"),
    path("access/people/<int:person_id>/invite", access_people.invite, name="access-person-invite"),
    path("access/people/<int:person_id>/password", access_people.password, name="access-person-password"),
    path(
        "access/people/<int:person_id>/reset-factors", access_people.reset_factors, name="access-person-reset-factors"
    ),
    path("access/people/<int:person_id>/sign-out", access_people.sign_out_person, name="access-person-sign-out"),
    path("access/sessions", access_sessions.sessions, name="access-sessions"),
    path("access/sessions/end-all", access_sessions.end_all_sessions, name="access-sessions-end-all"),
    path("access/sessions/<slug:session_id>/end", access_sessions.end_session, name="access-session-end"),
    path("access/tenants", access_tenants.tenants, name="access-tenants"),
    path("access/tenants.csv", admins_only(csv_download(TENANTS)), name="tenants-csv"),
    path("access/tenants/<slug:public_id>", access_tenants.tenants, name="access-tenant-change"),
    path(
        "access/tenants/<slug:public_id>/delete",
        access_tenants.tenants,
        {"act": "delete"},
        name="access-tenant-delete",
    ),
    path("access/groups", access_tenants.groups, name="access-groups"),
    path("access/groups.csv", admins_only(csv_download(GROUP_GRANTS)), name="groups-csv"),
    path("access/secrets", access_secrets.secrets, name="access-secrets"),
    path("access/you", access_you.you, name="access-you"),
    path("access/you/settings", preferences.own_settings, name="access-own-settings"),
    path("access/you/password", access_you.change_own_password, name="access-own-password"),
    path("access/you/app", access_factors.app, name="access-own-app"),
    path("access/you/factors/<int:number>/remove", access_factors.remove, name="access-own-factor-remove"),
    path("access/you/passkeys/options", access_factors.passkey_options, name="access-own-passkey-options"),
    path("access/you/passkeys", access_factors.add_passkey, name="access-own-passkey"),
    path("access/you/end-others", access_you.end_other_sessions, name="access-end-others"),
    path("audit", audit, name="audit"),
    path("audit/events.json", audit_download, name="audit-download"),
    path("incidents", incidents_overview, name="incidents"),
    path("incidents/<int:number>", incidents.incident, name="incident"),
    path("incidents/<int:number>/<slug:act>", incidents.handle_incident, name="incident-act"),
    path("incidents/<int:number>/report.md", incidents.incident_export, {"form": "md"}, name="incident-md"),
    path("incidents/<int:number>/report.json", incidents.incident_export, {"form": "json"}, name="incident-json"),
    path("jobs", jobs.jobs, name="jobs"),
    path("jobs/<int:run_id>/cancel", jobs.cancel_run, name="job-cancel"),
    path("jobs/<int:run_id>/retry", jobs.retry_run, name="job-retry"),
    path("automation", automation, name="automation"),
    path("automation/<slug:slug>", automation_pool, name="automation-pool"),
    path("automation/<slug:slug>/timeline", automation_timeline, name="automation-timeline"),
    *(
        path(f"automation/<slug:slug>/{do}", change_automation, {"do": do}, name=f"automation-{do}")
        for do in ("freeze", "unfreeze", "override", "end-override", "follow")
    ),
    *(
        path(
            f"automation/<slug:slug>/actions/<str:key>/{do}",
            change_automation,
            {"do": do},
            name=f"automation-action-{do}",
        )
        for do in ("confirm", "withdraw")
    ),
    *(
        path(
            f"automation/<slug:slug>/engines/<str:engine_id>/{do}",
            change_automation,
            {"do": do},
            name=f"automation-{do}",
        )
        for do in ("quarantine", "trust")
    ),
    path("views", saved_views.save, name="saved-views"),
    path("views/<int:view_id>", saved_views.save, name="saved-view-change"),
    path("search", palette, name="search"),
    path("help", help_page, name="help"),
    path("help/api", api_reference, name="api-reference"),
    path("help/tour", tour, name="tour"),
    path("llms.txt", llms_txt, name="llms-txt"),
    path("login", sign_in, name="login"),
    path("login/second", second_step, name="login-second"),
    path("login/invitation/<str:code>", invitation, name="login-invitation"),
    path("login/passkey/options", passkey_options, name="login-passkey-options"),
    path("login/passkey", passkey_sign_in, name="login-passkey"),
    path("login/provider", provider.begin, name="login-provider"),
    path("login/provider/callback", provider.callback, name="login-provider-callback"),
    path("logout", sign_out, name="logout"),
]

_RENAMED = {
    "decisions": "requests",
    "topology": "engines",
    "cache-locality": "cache",
    "kv": "cache/store",
    "services": "engines/services",
    "sovereignty": "regions/sovereignty",
    "capacity": "regions/capacity",
}
"""Former paths of pages by their present ones, for bookmarks and links in old messages."""
urlpatterns += [
    *(path(old, RedirectView.as_view(url=f"/{new}", query_string=True)) for old, new in _RENAMED.items()),
    path("decisions/<str:decision_id>", RedirectView.as_view(pattern_name="decision", query_string=True)),
    path("cache-locality/<slug:slug>", RedirectView.as_view(pattern_name="cache-pool", query_string=True)),
]

# Pages are personal and current, so every response is marked as not to be cached, without exception.
for address in urlpatterns:
    address.callback = never_cache(address.callback)
