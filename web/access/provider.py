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
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from requests import RequestException
from typing_extensions import override

from controlplane.access.group_grants import NotAdmittedError, admit
from web.access.login import login_form
from web.access.login_throttle import LoginThrottle
from web.access.sign_in_steps import PROVIDER, enter, safe_next
from web.shell.client_address import client_address

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by keys that only the provider has: neither `none` nor those with the client's secret."""
LEEWAY_S = 30
_REQUIRED = ["iss", "sub", "aud", "exp", "iat"]
_SCOPES = ("openid", "profile", "email", "groups")
_FAILED = "The sign-in provider's answer was not accepted. Try again, or sign in with a password."
_AWAY = "The sign-in provider does not answer. Try again, or sign in with a password."

logger = logging.getLogger(__name__)


class ProviderApps(DefaultSocialAccountAdapter):
    """Headway's part of allauth.socialaccount: one provider, from the settings, and its errors on the login page."""

    @override
    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> OpenIDConnectProvider:
        """Return the provider of the settings."""
        if not settings.OIDC_ISSUER:
            raise Http404
        app = SocialApp(
            provider=_Provider.id,
            provider_id=settings.OIDC_ISSUER,
            client_id=settings.OIDC_CLIENT_ID,
            secret=settings.OIDC_CLIENT_SECRET,
            settings={"server_url": settings.OIDC_ISSUER, "oauth_pkce_enabled": True},
        )
        return _Provider(request, app=app)

    @override
    def on_authentication_error(self, request: HttpRequest, provider: Any, **how: Any) -> None:
        """Show the login page with a sentence. The log has the reason."""
        raise ImmediateHttpResponse(_failed(request, how["exception"] or request.GET.get("error", "no such state")))


class _VerifiedTokens(OpenIDConnectOAuth2Adapter):
    """Exchanges the code for tokens, verifies the id token, and signs its subject in."""

    state: dict[str, Any]

    @property
    @override
    def openid_config(self) -> dict[str, Any]:
        """Return the discovery document, if it is that of the issuer."""
        config: dict[str, Any] = super().openid_config
        if str(config["issuer"]).rstrip("/") != settings.OIDC_ISSUER:
            raise OAuth2Error(f"the discovery document is that of {config['issuer']}")
        return config

    @override
    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """Return the address to which the provider redirects."""
        return request.build_absolute_uri("/login/provider/callback")

    @override
    def complete_login(self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any) -> None:
        """Sign the person in; always raises ImmediateHttpResponse, so that no other rule of allauth applies."""
        claims = self._verified(str(kwargs["response"].get("id_token") or ""))
        groups = claims.get(settings.OIDC_GROUPS_CLAIM)
        if groups is None and "userinfo_endpoint" in self.openid_config:
            info = self._fetch_user_info(token.token)
            # The access token might be another person's (OpenID Connect Core 1.0, §5.3.2).
            groups = info.get(settings.OIDC_GROUPS_CLAIM) if info.get("sub") == claims["sub"] else None
        try:
            user = admit(settings.OIDC_ISSUER, claims, groups)
        except NotAdmittedError as error:
            raise ImmediateHttpResponse(login_form(request, error=str(error), status=403)) from error
        except IntegrityError as error:
            raise OAuth2Error("another first sign-in of this person was faster") from error
        target = safe_next(request, self.state.get("next") or "")
        enter(request, user, PROVIDER)
        raise ImmediateHttpResponse(redirect(target))

    def _verified(self, token: str) -> dict[str, Any]:
        """Return the claims (OpenID Connect Core 1.0, §3.1.3.7). Raises OAuth2Error."""
        try:
            header, client = jwt.get_unverified_header(token), settings.OIDC_CLIENT_ID
            if header["alg"] not in ALGORITHMS:
                raise OAuth2Error(f"the id token is signed by {header['alg']}")
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key(header.get("kid")),
                algorithms=[header["alg"]],
                audience=client,
                issuer=self.openid_config["issuer"],
                leeway=LEEWAY_S,
                options={"require": _REQUIRED},
            )
        except (jwt.PyJWTError, KeyError, ValueError, StopIteration) as error:
            raise OAuth2Error("the id token is not valid") from error
        if not constant_time_compare(str(claims.get("nonce", "")), self.state["nonce"]):
            raise OAuth2Error("the id token has another nonce")
        if claims.get("azp", client) != client:
            raise OAuth2Error("the id token is for another client")
        return claims

    def _key(self, key_id: str | None) -> Any:
        """Return the provider's key with this id. Read at each sign-in, so that the provider can rotate its keys."""
        with get_adapter().get_requests_session() as session:
            answer = session.get(self.openid_config["jwks_uri"])
            answer.raise_for_status()
        keys = jwt.PyJWKSet.from_dict(answer.json()).keys
        return next(item.key for item in keys if item.key_id == key_id or (key_id is None and len(keys) == 1))


class _Provider(OpenIDConnectProvider):
    oauth2_adapter_class = _VerifiedTokens


class _Callback(OAuth2CallbackView):
    @override
    def _get_state(self, request: HttpRequest, provider: Any) -> Any:
        self.adapter.state, answer = super()._get_state(request, provider)
        return self.adapter.state, answer


@login_not_required
@require_safe
def begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider."""
    target = safe_next(request, request.GET.get("next", ""))
    provider, nonce = get_adapter().get_provider(request, PROVIDER), secrets.token_urlsafe(24)
    # Each beginning stores a session, so that one address may begin only a few.
    if wait_s := LoginThrottle().attempt_without_name(client_address(request)):
        return login_form(request, target, error=f"Too many attempts. Try again in {wait_s} s.", status=429)
    try:
        supported = provider.get_oauth2_adapter(request).openid_config.get("scopes_supported", _SCOPES[:3])
        scope, more = [name for name in _SCOPES if name in supported], {"nonce": nonce}
        return provider.redirect(request, "login", next_url=target, scope=scope, auth_params=more, nonce=nonce)
    except (OAuth2Error, RequestException, KeyError, ValueError) as error:
        return _failed(request, error)


@login_not_required
@require_safe
def callback(request: HttpRequest) -> HttpResponse:
    """Take the provider's answer, and sign the person in."""
    try:
        return _Callback.adapter_view(_VerifiedTokens(request, settings.OIDC_ISSUER))(request)
    except (KeyError, ValueError) as error:
        return _failed(request, error)


def _failed(request: HttpRequest, reason: Exception | str) -> HttpResponse:
    logger.warning("a sign-in by the provider failed", extra={"reason": str(reason)[:300]})
    away = isinstance(reason, RequestException)
    return login_form(request, error=_AWAY if away else _FAILED, status=502 if away else 401)
