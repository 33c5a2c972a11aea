"""Sign-in by an OpenID provider: authorization code flow with PKCE, state, nonce, and a verified id token."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import jwt
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from requests import RequestException
from typing_extensions import override

from controlplane.access.group_grants import Identity, NotAdmittedError, admit
from web.access.login import login_form
from web.access.login_throttle import LoginThrottle
from web.access.sign_in_steps import PROVIDER, enter, safe_next
from web.shell.client_address import client_address

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Signatures by keys that only the provider has: neither `none` nor those with the client's secret."""
LEEWAY_S = 30
_REQUIRED = ("iss", "sub", "aud", "exp", "iat")
_CALLBACK = "/login/provider/callback"
_FAILED = "The sign-in provider's answer was not accepted. Try again, or sign in with a password."
_AWAY = "The sign-in provider does not answer. Try again, or sign in with a password."

logger = logging.getLogger(__name__)


class ProviderApps(DefaultSocialAccountAdapter):
    """Headway's part of allauth.socialaccount: one provider, from the settings, and its errors on the login page."""

    @override
    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> OpenIDConnectProvider:
        """Return the provider of the settings."""
        app = SocialApp(
            provider=_Provider.id,
            provider_id=settings.OIDC_ISSUER,
            name=settings.OIDC_ISSUER,
            client_id=settings.OIDC_CLIENT_ID,
            secret=settings.OIDC_CLIENT_SECRET,
            settings={"server_url": settings.OIDC_ISSUER, "oauth_pkce_enabled": True},
        )
        return _Provider(request, app=app)

    @override
    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        """Show the login page with a sentence. The log has the reason."""
        reason = str(exception.__cause__ or exception) if exception else request.GET.get("error", "no such state")
        raise ImmediateHttpResponse(_failed(request, reason, away=isinstance(exception, RequestException)))


class _VerifiedTokens(OpenIDConnectOAuth2Adapter):
    """Exchanges the code for tokens, verifies the id token, and signs its subject in."""

    state: dict[str, Any]

    @property
    @override
    def openid_config(self) -> dict[str, Any]:
        """Return the discovery document, if it is that of the issuer."""
        config: dict[str, Any] = super().openid_config
        if str(config.get("issuer", "")).rstrip("/") != settings.OIDC_ISSUER:
            raise OAuth2Error(f"the discovery document is that of {config.get('issuer')}")
        return config

    @override
    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """Return the address to which the provider redirects."""
        return request.build_absolute_uri(_CALLBACK)

    @override
    def complete_login(self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any) -> None:
        """Sign the person in; always raises ImmediateHttpResponse, so that no other rule of allauth applies."""
        claims = self._verified(str(kwargs["response"].get("id_token") or ""))
        if settings.OIDC_GROUPS_CLAIM not in claims and "userinfo_endpoint" in self.openid_config:
            info = self._fetch_user_info(token.token)
            # The access token might be another person's (OpenID Connect Core 1.0, §5.3.2).
            if info.get("sub") == claims["sub"]:
                claims = {**info, **claims}
        try:
            user = admit(Identity.of(settings.OIDC_ISSUER, claims, settings.OIDC_GROUPS_CLAIM))
        except NotAdmittedError as error:
            raise ImmediateHttpResponse(login_form(request, error=str(error), status=403)) from error
        target = safe_next(request, self.state.get("next") or "")
        enter(request, user, PROVIDER)
        raise ImmediateHttpResponse(redirect(target))

    def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims (OpenID Connect Core 1.0, §3.1.3.7). Raises OAuth2Error."""
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise OAuth2Error(f"the id token is signed by {header.get('alg')}")
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(header.get("kid")),
                algorithms=[header["alg"]],
                audience=settings.OIDC_CLIENT_ID,
                issuer=self.openid_config["issuer"],
                leeway=LEEWAY_S,
                options={"require": list(_REQUIRED)},
            )
        except (jwt.PyJWTError, KeyError, ValueError, StopIteration) as error:
            raise OAuth2Error("the id token is not valid") from error
        if not constant_time_compare(str(claims.get("nonce", "")), self.state["nonce"]):
            raise OAuth2Error("the id token has another nonce")
        if claims.get("azp", settings.OIDC_CLIENT_ID) != settings.OIDC_CLIENT_ID:
            raise OAuth2Error("the id token is for another client")
        return claims

    def _key(self, key_id: str | None) -> Any:
        """Return the provider's key with this id. Read at each sign-in, so that the provider can rotate its keys."""
        with get_adapter().get_requests_session() as session:
            answer = session.get(self.openid_config["jwks_uri"])
            answer.raise_for_status()
        keys = jwt.PyJWKSet.from_dict(answer.json()).keys
        if key_id is None and len(keys) == 1:
            return keys[0].key
        return next(item.key for item in keys if item.key_id == key_id and item.public_key_use != "enc")


class _Provider(OpenIDConnectProvider):
    oauth2_adapter_class = _VerifiedTokens


class _Callback(OAuth2CallbackView):
    @override
    def _get_state(self, request: HttpRequest, provider: Any) -> Any:
        state, answer = super()._get_state(request, provider)
        self.adapter.state = state
        return state, answer


@login_not_required
@require_safe
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider."""
    if not settings.OIDC_ISSUER:
        raise Http404
    target = safe_next(request, request.GET.get("next", ""))
    if request.user.is_authenticated:
        return redirect(target)
    # Each beginning stores a session, so that one address may begin only a few.
    if wait_s := LoginThrottle().attempt_without_name(client_address(request)):
        return login_form(request, target, error=f"Too many attempts. Try again in {wait_s} s.", status=429)
    provider, nonce = get_adapter().get_provider(request, PROVIDER), secrets.token_urlsafe(24)
    try:
        answer: HttpResponse = provider.redirect(
            request,
            "login",
            next_url=target,
            scope=_scope(provider, request),
            auth_params={"nonce": nonce},
            nonce=nonce,
        )
    except ImmediateHttpResponse as error:
        return error.response
    except (OAuth2Error, RequestException, KeyError, ValueError) as error:
        return _failed(request, str(error), away=True)
    return answer


@login_not_required
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Take the provider's answer, and sign the person in."""
    if not settings.OIDC_ISSUER:
        raise Http404
    try:
        return _Callback.adapter_view(_VerifiedTokens(request, settings.OIDC_ISSUER))(request)
    except (KeyError, ValueError) as error:
        return _failed(request, f"{type(error).__name__}: {error}")


def _scope(provider: OpenIDConnectProvider, request: HttpRequest) -> list[str]:
    supported = provider.get_oauth2_adapter(request).openid_config.get("scopes_supported", ())
    return ["openid", "profile", "email", *(("groups",) if "groups" in supported else ())]


def _failed(request: HttpRequest, reason: str, *, away: bool = False) -> HttpResponse:
    logger.warning("a sign-in by the provider failed", extra={"reason": reason[:300]})
    return login_form(request, error=_AWAY if away else _FAILED, status=502 if away else 401)
