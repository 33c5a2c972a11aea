"""`/api/v1/policies/{slug}/versions`: drafting, publishing, rolling back."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.base import ApiView, by_method, taken_why, why_of
from controlplane.platform.api.etags import expected_revision
from controlplane.platform.api.filters import present
from controlplane.platform.api.listing import Listing
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


class _VersionView(ApiView):
    noun = "policies"
    shape = PolicyVersionShape

    def policy(self, slug: str) -> Policy:
        """Return the policy."""
        return visible_policies(self.actor).get(slug=slug)

    def version(self, slug: str, number: int) -> PolicyVersion:
        """Return one of its versions."""
        return self.policy(slug).versions.select_related("policy__live_version", "author").get(number=number)


class PolicyVersions(_VersionView):
    """The versions of one policy, and new ones."""

    bodies = by_method(POST=NewPolicyVersion)
    answers = by_method(POST=(201, PolicyVersionShape))
    listing = Listing(
        {"number": ("number",)},
        "-number",
        {"published": present("published_at", "Whether it was ever live.")},
    )

    def get(self, request: Request, *, slug: str) -> Response:
        """List versions, the newest first."""
        return self.show_page(self.policy(slug).versions.select_related("policy__live_version", "author"))

    def post(self, request: Request, *, slug: str) -> Response:
        """Store a document as the next version; it changes nothing until it is published."""
        policy, body = self.policy(slug), self.body()
        return self.show(policies.draft(policy, **body, actor=self.actor), 201)


class OnePolicyVersion(_VersionView):
    """One version."""

    def get(self, request: Request, *, slug: str, number: int) -> Response:
        """Return the version."""
        return self.show(self.version(slug, number))


class PolicyPublication(_VersionView):
    """One version going live."""

    bodies = by_method(POST=Publication)

    def post(self, request: Request, *, slug: str, number: int) -> Response:
        """Make the version live everywhere at once; 412 with the live one when it is not `instead_of`."""
        version, body = self.version(slug, number), self.body()
        published = policies.publish_version(
            version, instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(published)


class VersionApproval(_VersionView):
    """The second person's approval of one version."""

    bodies = by_method(POST=Approval)

    def post(self, request: Request, *, slug: str, number: int) -> Response:
        """Approve the version; 409 for its author and for API keys. Asked twice it changes nothing."""
        version = self.version(slug, number)
        policy_approvals.approve(version, actor=self.actor, why=taken_why(self.body()))
        return self.show(version)


class VersionApprovalWithdrawal(_VersionView):
    """The second person's change of mind."""

    bodies = by_method(POST=Approval)

    def post(self, request: Request, *, slug: str, number: int) -> Response:
        """Take one's own approval back; 409 where there is none."""
        version = self.version(slug, number)
        policy_approvals.withdraw_approval(version, actor=self.actor, why=taken_why(self.body()))
        return self.show(version)


class VersionSchedule(_VersionView):
    """One version going live at a chosen moment."""

    shape = ScheduledPublishShape
    bodies = by_method(POST=Schedule)
    answers = by_method(POST=(201, ScheduledPublishShape))
    has_etag = True

    def newest(self, slug: str, number: int) -> ScheduledPublish:
        """Return the version's newest appointment; raises DoesNotExist."""
        found = scheduled_publishes.newest_schedules([self.version(slug, number)])
        if not found:
            raise ScheduledPublish.DoesNotExist
        return next(iter(found.values()))

    def get(self, request: Request, *, slug: str, number: int) -> Response:
        """Return the version's newest appointment, also one that has ended; 404 where it never had one."""
        return self.show(self.newest(slug, number))

    def post(self, request: Request, *, slug: str, number: int) -> Response:
        """Have the version go live then, refused or not as a publish at that moment; 409 while another one waits."""
        version, body = self.version(slug, number), self.body()
        made = scheduled_publishes.schedule_publish(
            version, body["at"], instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(made, 201)

    def delete(self, request: Request, *, slug: str, number: int) -> Response:
        """Call the appointment off; 409 where it has ended already."""
        schedule = self.newest(slug, number)
        expected = expected_revision(request, schedule)
        scheduled_publishes.cancel_schedule(schedule, actor=self.actor, expected=expected, why=why_of(request))
        return self.show(schedule)


class PolicyRollBack(_VersionView):
    """One policy going back."""

    bodies = by_method(POST=RollBack)
    answers = by_method(POST=(201, PolicyVersionShape))

    def post(self, request: Request, *, slug: str) -> Response:
        """Publish a copy of an earlier version; 412 with the live one when it is not `instead_of`."""
        policy, body = self.policy(slug), self.body()
        copy = policies.roll_back(
            policy, body["number"], instead_of=body["instead_of"], actor=self.actor, why=taken_why(body)
        )
        return self.show(copy, 201)
