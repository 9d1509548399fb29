"""Settings of access control, with the original's defaults: all of it off. ``KEYS`` reads them from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from tallystick.errors import UsageError
from tallystick.rocketmq.ha.entry import Addresses, read_addresses
from tallystick.rocketmq.wire.signature import Credentials
from tallystick.runtime import keyfile
from tallystick.runtime.schema import Key, Part

# What an original's file says where it says that nothing is special.
_PROVIDERS = {
    "authenticationProvider": "authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": "authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": "authorization.provider.LocalAuthorizationMetadataProvider",
}
CHECKED = tuple(_PROVIDERS)


@dataclass(frozen=True)
class AccessSettings:
    """One line a setting; the original's key in brackets. Raises UsageError for values that cannot work."""

    authenticates: bool = False  # requests must be signed (authenticationEnabled)
    authorizes: bool = False  # and their users need policies (authorizationEnabled)
    first_user: Credentials | None = None  # a super user, if there is none of that name (initAuthenticationUser)
    inner_credentials: Credentials | None = field(default=None)  # (innerClientAuthenticationCredentials)
    white_addresses: Addresses = ()  # from which requests need no key: ours only (whiteAddresses)
    has_whitelist: bool = False  # there may be some: ours only (allowWhitelist)
    anonymous: bool = False  # beyond this machine without any of it, or without keys: ours only (allowAnonymous)

    def __post_init__(self) -> None:
        if self.authorizes and not self.authenticates:
            raise UsageError("authorizationEnabled=true needs authenticationEnabled=true: else nobody knows who asks")
        if self.white_addresses and not self.has_whitelist:
            raise UsageError("white_addresses let in who has no key: write allowWhitelist=true if that is meant")


def _credentials(name_member: str, secret_member: str) -> Callable[[str, str], Credentials]:
    def read(key: str, value: str) -> Credentials:
        try:
            members = msgspec.json.decode(value, type=dict[str, str])
            return Credentials(members[name_member], members[secret_member])
        except (msgspec.DecodeError, KeyError):  # neither the value nor the error is shown: they hold the secret
            members_text = f'{{"{name_member}":"...","{secret_member}":"..."}}'
            raise UsageError(f"{key} is {members_text}") from None

    return read


def _hidden(value: Credentials) -> str:
    """Whoever may see the settings must not see the secret."""
    return "***"


def check_providers(texts: Mapping[str, str]) -> None:
    """Raises UsageError for a provider other than the original's own, which is what ours does."""
    for key, name in _PROVIDERS.items():
        if texts.get(key, name).removeprefix("org.apache.rocketmq.auth.") != name:
            raise UsageError(f"{key} is not supported: users and policies are checked by this broker", value=texts[key])


KEYS = Part(
    AccessSettings,
    {
        "authenticationEnabled": Key("authenticates", keyfile.flag),
        "authorizationEnabled": Key("authorizes", keyfile.flag),
        "initAuthenticationUser": Key("first_user", _credentials("username", "password"), _hidden),
        "innerClientAuthenticationCredentials": Key(
            "inner_credentials", _credentials("accessKey", "secretKey"), _hidden
        ),
        "whiteAddresses": Key("white_addresses", read_addresses),  # these three are ours only
        "allowWhitelist": Key("has_whitelist", keyfile.flag),
        "allowAnonymous": Key("anonymous", keyfile.flag),
    },
)
