"""`/api/v1/policies/{slug}/versions`: drafts, publishing, and rollbacks."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.platform.actor import Actor
from controlplane.platform.api.etags import expected_revision
from controlplane.platform.api.listing import Listing, present
from controlplane.platform.api.views import ApiView, Verb, by_method, taken_why, why_of
from controlplane.policies import approvals as policy_approvals
from controlplane.policies import publish as policies
from controlplane.policies import scheduled_publishes
from controlplane.policies.api.policy_shape import (
    Approval,
    NewPolicyVersion,
    PolicyVersionShape,
    Publication,
    RollBack,
    Schedule,
    ScheduledPublishShape,
)
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish
from controlplane.policies.reading import visible_policies


def _version(actor: Actor, slug: str, number: int) -> PolicyVersion:
    """Return a version of a policy that the actor may see."""
    versions = visible_policies(actor).get(slug=slug).versions
    return versions.select_related("policy__live_version", "author").get(number=number)


class _VersionView(ApiView):
    noun = "policies"
    shape = PolicyVersionShape

    def policy(self, slug: str) -> Policy:
        """Return the policy."""
        return visible_policies(self.actor).get(slug=slug)

    def version(self, slug: str, number: int) -> PolicyVersion:
        """Return one version of the policy."""
        return _version(self.actor, slug, number)


class _VersionVerb(Verb):
    noun = "policies"
    shape = PolicyVersionShape

    @override
    def thing(self, **names: Any) -> PolicyVersion:
        """Return the version."""
        return _version(self.actor, **names)


class PolicyVersions(_VersionView):
    """List the versions of one policy, or add one."""

    bodies = by_method(POST=NewPolicyVersion)
    listing = Listing(
        {"number": ("number",)},
        "-number",
        {"published": present("published_at", "Whether it was ever live.")},
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """List versions, newest first."""
        return self.show_page(self.policy(slug).versions.select_related("policy__live_version", "author"))

    def post(self, request: Request, *, slug: str) -> Response:
        """Store a document as the next version, which has no effect until it is published."""
        policy, body = self.policy(slug), self.body()
        return self.show(policies.draft(policy, **body, actor=self.actor), 201)


class OnePolicyVersion(_VersionView):
    """One version. Only a draft can be deleted."""

    def get(self, request: Request, *, slug: str, number: int) -> Response:
        """Return the version."""
        return self.show(self.version(slug, number))

    def delete(self, request: Request, *, slug: str, number: int) -> Response:
        """Delete a draft with its ended trials. Responds with 409 if it was live or a canary, or is in use."""
        policies.delete_draft(self.version(slug, number), actor=self.actor, why=why_of(request))
        return Response(status=204)


class PolicyPublication(_VersionVerb):
    """Make the version live everywhere immediately.

    Responds with 412 and the live version if that is not `instead_of`.
    """

    verb = staticmethod(policies.publish_version)
    bodies = by_method(POST=Publication)


class VersionApproval(_VersionVerb):
    """Approve the version. Responds with 409 to its author and to API keys. A repeated approval changes nothing."""

    verb = staticmethod(policy_approvals.approve)
    bodies = by_method(POST=Approval)

    @override
    def carry_out(self, thing: PolicyVersion, **asked: Any) -> PolicyVersion:
        """Approve the version and return it."""
        self.verb(thing, **asked)
        return thing


class VersionApprovalWithdrawal(_VersionVerb):
    """Withdraw the caller's approval. Responds with 409 if there is none."""

    verb = staticmethod(policy_approvals.withdraw_approval)
    bodies = by_method(POST=Approval)


class VersionSchedule(_VersionView):
    """The scheduled publish of one version."""

    shape = ScheduledPublishShape
    bodies = by_method(POST=Schedule)
    answers = by_method(POST=(201, ScheduledPublishShape))
    has_etag = True

    def newest(self, slug: str, number: int) -> ScheduledPublish:
        """Return the version's newest scheduled publish. Raises DoesNotExist."""
        schedules = scheduled_publishes.newest_schedules([self.version(slug, number)])
        if not schedules:
            raise ScheduledPublish.DoesNotExist
        return next(iter(schedules.values()))

    def get(self, request: Request, *, slug: str, number: int) -> Response:
        """Return the version's newest scheduled publish, even if it has ended, or 404 if there was none."""
        return self.show(self.newest(slug, number))

    def post(self, request: Request, *, slug: str, number: int) -> Response:
        """Schedule the version to go live, subject to the checks of a publish at that time.

        Responds with 409 if another publish is scheduled.
        """
        version, body = self.version(slug, number), self.body()
        made = scheduled_publishes.schedule_publish(
            version, body["at"], instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(made, 201)

    def delete(self, request: Request, *, slug: str, number: int) -> Response:
        """Cancel the scheduled publish. Responds with 409 if it has already ended."""
        schedule = self.newest(slug, number)
        expected = expected_revision(request, schedule)
        scheduled_publishes.cancel_schedule(schedule, actor=self.actor, expected=expected, why=why_of(request))
        return self.show(schedule)


class PolicyRollBack(_VersionView):
    """Rollback of one policy."""

    bodies = by_method(POST=RollBack)
    answers = by_method(POST=(201, PolicyVersionShape))

    def post(self, request: Request, *, slug: str) -> Response:
        """Publish a copy of an earlier version. Responds with 412 and the live version if that is not `instead_of`."""
        policy, body = self.policy(slug), self.body()
        copy = policies.roll_back(
            policy, body["number"], instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(copy, 201)
